"""The windows of canary and control as Prometheus tells them: what it does not tell is not known, and never zero."""

import math

import pytest

from plimsoll.core.judge import Window
from plimsoll.core.sampling import Answer, Series
from plimsoll.core.trial_windows import read_windows, window_query

ALL = {
    "ttft_total": 30.0, "ttft_count": 60.0, "token_total": 12.0, "token_count": 600.0, "token_tail": 0.06,
    "request_total": 180.0, "request_count": 60.0, "generated": 1200.0, "finished": 58.0, "failed": 2.0,
    "rejected": 3.0, "preemptions": 4.0, "waiting": 5.0, "usage": 0.5,
}  # fmt: skip


def read(seconds: float = 60.0, **figures: float) -> Window:
    series = tuple(Series({"pod": "canary", "figure": name}, value) for name, value in figures.items())
    return read_windows(Answer(series), seconds)["canary"]


def test_all_figures_of_a_window() -> None:
    assert read(**ALL) == Window(
        ttft_seconds=0.5, token_seconds=0.02, token_tail_seconds=0.06, request_seconds=3.0, tokens=20.0, finished=58.0,
        waiting=5.0, usage=0.5, preemptions=4.0, failed=5.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("figures", "expect"),
    [
        pytest.param({"waiting": 1.0}, Window(waiting=1.0), id="only that one waits"),
        pytest.param({"ttft_total": 3.0}, Window(), id="a sum without its count"),
        pytest.param({"ttft_count": 3.0}, Window(), id="a count without its sum"),
        pytest.param({"ttft_total": 0.0, "ttft_count": 0.0}, Window(), id="of no request there is no mean"),
        pytest.param({"ttft_total": 0.0, "ttft_count": 2.0}, Window(ttft_seconds=0.0), id="no time at all is a time"),
        pytest.param(
            {"finished": 9.0}, Window(finished=9.0, failed=0.0), id="none failed: there is no such series yet"
        ),
        pytest.param({"failed": 2.0}, Window(failed=2.0), id="all failed"),
        pytest.param({"finished": 9.0, "rejected": 1.0}, Window(finished=9.0, failed=1.0), id="one was turned away"),
        pytest.param({"rejected": 1.0}, Window(), id="whether any failed is not known"),
        pytest.param({"generated": 0.0}, Window(tokens=0.0), id="not one token is none"),
        pytest.param({"usage": math.nan, "waiting": 1.0}, Window(waiting=1.0), id="no number"),
        pytest.param({"usage": 0.123456789}, Window(usage=0.123457), id="six digits"),
    ],
)
def test_what_is_not_told_is_not_known(figures: dict[str, float], expect: Window) -> None:
    assert read(**figures) == expect


def test_a_pod_that_says_nothing_has_no_window() -> None:
    told = [Series({"pod": "control", "figure": "usage"}, 0.5), Series({"pod": "canary", "figure": "usage"}, math.nan)]
    assert read_windows(Answer(tuple(told)), 60.0) == {"control": Window(usage=0.5)}


def test_both_pods_are_asked_about_a_window_of_the_past() -> None:
    text = window_query(["svc-b", "svc-a"], "llm", 60.0, 90.5, {"cluster": "c"})
    assert text.count('{cluster="c",namespace="llm",pod=~"svc-a|svc-b"') == text.count("vllm:")
    assert text.count("[60000ms] offset 90500ms") == text.count("vllm:")
    assert "histogram_quantile(0.95, " in text
