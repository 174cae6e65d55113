"""The judge's figures one by one: how far a mean may be off, and on which side of each limit a case falls.

The same in every window, so nothing is left to chance: what `test_judge.py` asks of noisy series is not asked here.
"""

import math
from dataclasses import replace

import pytest

from plimsoll.core.judge import WINDOWS, Effect, Pair, Question, Window, alarm, effect, judge

TTFT, TOKEN = Question("ttft"), Question("token")
CONTROL = Window(
    ttft_seconds=4.0, token_seconds=0.03, token_tail_seconds=0.06, request_seconds=12.0, tokens=800.0, finished=60.0,
    waiting=12.0, usage=0.4, preemptions=0.0, failed=0.0,
)  # fmt: skip
QUICK = replace(CONTROL, ttft_seconds=0.5)
CALM = replace(CONTROL, waiting=0.0)


@pytest.mark.parametrize(
    ("series", "block", "error"),
    [
        # Ten of a half each way, one by one: their variance is 1/9, and nine degrees of freedom are left.
        pytest.param([1.0, -1.0] * 5, 1, 2.82 / 3, id="apart: every window is an observation"),
        # Two blocks, whose means are a fifth: one degree of freedom.
        pytest.param([1.0, -1.0] * 5, 5, 31.8 / 5, id="two blocks are two observations"),
        pytest.param([1.0, -1.0] * 6, 3, 4.54 * math.sqrt(1 / 27), id="four blocks"),
        pytest.param([1.0, -1.0] * 3, 5, 31.8 / 3, id="a series is two blocks at least"),
        pytest.param([1.0, -1.0], 5, 31.8, id="two windows"),
        pytest.param([1.0, -1.0] * 10, 2, 2.76 * math.sqrt(1 / 19), id="blocks that cancel: as if apart"),
        # Of twenty the next keeps 1/20, and 11/100 when that is corrected for so short a series.
        pytest.param([1.0, 1.0, -1.0, -1.0] * 5, 1, 2.76 * math.sqrt(111 / 89 / 19), id="a little is kept"),
        pytest.param([1.0] * 10 + [-1.0] * 10, 1, 2.76 * math.sqrt(39 / 19), id="nearly all is kept"),
        pytest.param([3.0, 1.0, -1.0, -3.0] * 5, 1, 2.76 * math.sqrt(5 / 19), id="large ones weigh more: none is kept"),
        pytest.param([0.5] * 10, 5, 0.0, id="always the same"),
    ],
)
def test_how_far_a_mean_may_be_off(series: list[float], block: int, error: float) -> None:
    found = effect(series, block)
    assert found.mean == pytest.approx(sum(series) / len(series))
    assert found.error == pytest.approx(error)


def test_a_mean_lies_between_its_edges() -> None:
    found = Effect(1.0, 0.25)
    assert (found.low, found.high) == (0.75, 1.25)


def windows(control: Window | None, canary: Window | None, count: int = WINDOWS) -> list[Pair]:
    return [Pair(control, canary)] * count


@pytest.mark.parametrize(
    ("pairs", "question", "outcome", "word"),
    [
        pytest.param(
            [*windows(CONTROL, None, 7), *windows(CONTROL, QUICK, 18)], TTFT, "keep", "in 18 windows", id="7 silent"
        ),
        pytest.param(
            [*windows(CONTROL, None, 8), *windows(CONTROL, QUICK, 17)], TTFT, "rollback", "in 8 of 25", id="8 silent"
        ),
        pytest.param(
            windows(CONTROL, replace(QUICK, finished=3.0)), TTFT, "inconclusive", "only 0 of", id="one tells too little"
        ),
        pytest.param(
            windows(replace(CONTROL, finished=5.0), replace(QUICK, finished=5.0)),
            TTFT,
            "keep",
            "in 25 windows",
            id="five requests tell",
        ),
        pytest.param(
            [*windows(None, None, 15), *windows(CONTROL, QUICK, 10)], TTFT, "inconclusive", "only 10 of", id="10 tell"
        ),
        pytest.param(
            [*windows(None, None, 3), *windows(CONTROL, QUICK, 7)],
            Question("ttft", 10),
            "inconclusive",
            "not known",
            id="seven of ten tell, and are too few for a figure",
        ),
        pytest.param(
            [*windows(CONTROL, QUICK, 6), *windows(CALM, QUICK, 14)], Question("ttft", 20), "keep", "20", id="6 pressed"
        ),
        pytest.param(
            [*windows(CONTROL, QUICK, 5), *windows(CALM, QUICK, 15)],
            Question("ttft", 20),
            "inconclusive",
            "in only 5 of 20",
            id="5 pressed",
        ),
    ],
)
def test_how_many_windows_it_takes(pairs: list[Pair], question: Question, outcome: str, word: str) -> None:
    verdict = judge(pairs, question)
    assert (verdict.outcome, word in verdict.why) == (outcome, True), verdict


@pytest.mark.parametrize(
    ("told", "known", "windows_asked", "is_known"),
    [(25, 18, 25, True), (25, 17, 25, False), (12, 10, 12, True), (12, 9, 12, False)],
)
def test_a_figure_is_known_from_seven_of_ten_windows_and_from_ten(
    told: int, known: int, windows_asked: int, is_known: bool
) -> None:
    silent = replace(QUICK, failed=None)
    verdict = judge(
        [Pair(CONTROL, QUICK)] * known + [Pair(CONTROL, silent)] * (told - known), Question("ttft", windows_asked)
    )
    assert verdict.outcome == ("keep" if is_known else "inconclusive")
    assert is_known or "failed requests is not known" in verdict.why


@pytest.mark.parametrize(
    ("control", "question", "pressed"),
    [
        pytest.param({"waiting": 1.0}, TTFT, True, id="one waits"),
        pytest.param({"waiting": 0.9}, TTFT, False, id="less than one waits"),
        pytest.param({"usage": 0.9}, TTFT, True, id="the pool is full"),
        pytest.param({"usage": 0.95}, TTFT, True, id="the pool is very full"),
        pytest.param({"usage": 0.89}, TTFT, False, id="the pool has room"),
        pytest.param({"waiting": None, "usage": None}, TTFT, False, id="nothing is known of either"),
        pytest.param({}, Question("ttft", ttft_target_seconds=5.0), True, id="first tokens near their target"),
        pytest.param({}, Question("ttft", ttft_target_seconds=6.0), False, id="first tokens well within it"),
        pytest.param({"ttft_seconds": 3.5}, Question("ttft", ttft_target_seconds=5.0), False, id="just well within it"),
        pytest.param({}, Question("ttft", token_target_seconds=0.04), True, id="tokens near their target"),
        pytest.param({}, Question("ttft", token_target_seconds=0.05), True, id="slow tokens beyond it"),
        pytest.param({}, Question("ttft", token_target_seconds=0.06), False, id="slow tokens just within it"),
        pytest.param(
            {"ttft_seconds": None}, Question("ttft", ttft_target_seconds=1.0), False, id="first tokens are not known"
        ),
    ],
)
def test_when_a_control_is_under_pressure(control: dict[str, float | None], question: Question, pressed: bool) -> None:
    verdict = judge(windows(replace(CALM, **control), QUICK), question)
    assert ("under pressure in only 0 of" not in verdict.why) is pressed, verdict


@pytest.mark.parametrize(
    ("canary", "question", "outcome", "word"),
    [
        pytest.param({"ttft_seconds": 2.6}, TTFT, "keep", "-35%", id="a third less, with as much to do"),
        pytest.param({"ttft_seconds": 2.6, "tokens": 840.0}, TTFT, "keep", "-35%", id="with more to do"),
        pytest.param({"ttft_seconds": 2.6, "tokens": 760.0}, TTFT, "inconclusive", "chance", id="with less to do"),
        pytest.param({"ttft_seconds": 1.9, "tokens": 760.0}, TTFT, "keep", "-52%", id="far less, with less to do"),
        pytest.param({"ttft_seconds": 2.6, "tokens": None}, TTFT, "inconclusive", "chance", id="who knows with what"),
        pytest.param({"ttft_seconds": 1.0, "tokens": 690.0}, TTFT, "keep", "-75%", id="86 % of the traffic"),
        pytest.param({"ttft_seconds": 1.0, "tokens": 670.0}, TTFT, "inconclusive", "less to do", id="84 % of it"),
        pytest.param({"ttft_seconds": 0.5, "preemptions": 2.4}, TTFT, "keep", "-88%", id="0.04 preemptions a request"),
        pytest.param({"ttft_seconds": 0.5, "failed": 0.5}, TTFT, "keep", "-88%", id="one of 120 fails"),
        pytest.param(
            {"ttft_seconds": 0.5, "tokens": 500.0, "request_seconds": 9.0}, TTFT, "rollback", "generated tokens",
            id="fewer tokens are bought by nothing",
        ),
        pytest.param(
            {"ttft_seconds": 9.0, "request_seconds": 9.0}, TTFT, "rollback", "first token",
            id="what was to fall is bought by nothing",
        ),
        pytest.param(
            {"ttft_seconds": 0.5, "token_seconds": 0.35}, Question("ttft", token_target_seconds=0.5), "keep", "-88%",
            id="tokens just well within their target",
        ),
        pytest.param(
            {"ttft_seconds": 0.5, "token_seconds": 0.36}, Question("ttft", token_target_seconds=0.5), "rollback",
            "output token", id="tokens not well within it",
        ),
    ],
)  # fmt: skip
def test_on_which_side_of_a_limit(canary: dict[str, float | None], question: Question, outcome: str, word: str) -> None:
    verdict = judge(windows(CONTROL, replace(CONTROL, **canary)), question)
    assert (verdict.outcome, word in verdict.why) == (outcome, True), verdict


def test_what_both_do_alike_is_no_harm() -> None:
    both = {"preemptions": 30.0, "failed": 6.0}
    assert judge(windows(replace(CONTROL, **both), replace(QUICK, **both)), TTFT).outcome == "keep"


@pytest.mark.parametrize(
    ("control", "canary", "said"),
    [
        pytest.param({}, {"failed": 15.0}, "", id="a fifth fails"),
        pytest.param({}, {"failed": 16.0}, "failed", id="more than a fifth fails"),
        pytest.param({}, {"failed": 1.0}, "", id="one fails"),
        pytest.param({}, {"failed": 0.3, "finished": 0.0}, "failed", id="all that ended, and that is less than one"),
        pytest.param({}, {"failed": 0.25, "finished": None}, "failed", id="what is done is not known"),
        pytest.param({"failed": 6.0, "finished": 54.0}, {"failed": 40.0}, "", id="and half as many beside it"),
        pytest.param({"failed": 6.0, "finished": 69.0}, {"failed": 40.0}, "failed", id="and fewer beside it"),
        pytest.param({}, {"finished": 0.0, "tokens": 700.0}, "", id="none is done, and nearly as many tokens are made"),
        pytest.param({}, {"finished": 0.0, "tokens": 640.0}, "", id="none is done, and four fifths are made"),
        pytest.param({}, {"finished": 0.0, "tokens": 630.0}, "finished nothing", id="none is done, and fewer are made"),
        pytest.param({}, {"ttft_seconds": 12.0, "tokens": 500.0}, "", id="three times as slow"),
        pytest.param({}, {"ttft_seconds": 12.1, "tokens": 500.0}, "first token", id="slower than that"),
        pytest.param({}, {"ttft_seconds": 22.0, "tokens": 640.0}, "", id="slow with four fifths of the tokens"),
        pytest.param({"finished": 2.0}, {"ttft_seconds": 22.0, "tokens": 500.0}, "", id="a control that tells little"),
    ],
)
def test_where_an_alarm_begins(control: dict[str, float | None], canary: dict[str, float | None], said: str) -> None:
    found: str = alarm(windows(replace(CONTROL, **control), replace(CONTROL, **canary), 3))
    assert (bool(found), said in found) == (bool(said), True), found
