"""What is asked of Prometheus. That a real one understands it is tested in ``e2e/test_metrics.py``."""

import re

import pytest

from plimsoll.core import promql
from plimsoll.core.promql import Windows
from plimsoll.core.trial_windows import window_query
from plimsoll.facts.engine_metrics import METRICS

MOST_QUERIES = 12


def asked(**labels: str) -> dict[str, str]:
    return promql.queries(Windows(60, 300), labels, range(50, 100))


def test_queries_of_a_tick_stay_few() -> None:
    assert len(asked()) + 1 <= MOST_QUERIES  # and one about targets, when something is missing


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_every_spelling_is_asked_for(metric: object) -> None:
    everything = " ".join([*asked().values(), window_query(["p"], "llm", 60, 0, {})])
    assert all(name in everything for name in metric.names)  # type: ignore[attr-defined]


def test_labels_of_the_settings_are_on_every_series() -> None:
    every = " ".join([*asked(cluster='a"\\').values(), promql.targets(["p"], {"cluster": 'a"\\'})])
    assert every.count("vllm:") + every.count("up{") == every.count('{cluster="a\\"\\\\"')


@pytest.mark.parametrize(
    ("wanted", "percentile"), [(50, 50), (51, 75), (75, 75), (80, 90), (95, 95), (96, 99), (99, 99)]
)
def test_a_percentile_is_asked_for_at_least_as_high(wanted: int, percentile: int) -> None:
    assert promql.percentile_asked(wanted) == percentile


def test_targets_are_asked_about_by_name() -> None:
    assert promql.targets(["b", "a"], {}) == 'max by (namespace, pod) (up{pod=~"a|b"})'


BY = "namespace, pod, engine"


def _told(signal: str, expression: str) -> str:
    return f'label_replace({expression}, "signal", "{signal}", "", "")'


def _once(function: str, name: str, window: str) -> str:
    return f'max by ({BY}) ({function}({name}{{a="b"}}[{window}]))'


@pytest.mark.parametrize(
    ("query", "holds"),
    [
        pytest.param("now", _told("RUNNING", f'max by ({BY}) (vllm:num_requests_running{{a="b"}})'), id="a gauge now"),
        pytest.param(
            "rates", _told("PREEMPTIONS", _once("rate", "vllm:num_preemptions_total", "60000ms")), id="a counter's rate"
        ),
        pytest.param(
            "prefix",
            _told("RUNNING_MEAN", _once("avg_over_time", "vllm:num_requests_running", "300000ms")),
            id="a mean over the longer window",
        ),
        pytest.param(
            "rates",
            f'sum by ({BY}) (max by ({BY}, finished_reason) (rate(vllm:request_success_total{{a="b"}}[60000ms])))',
            id="reasons are added up, each counted once",
        ),
        pytest.param(
            "rates", _once("deriv", "vllm:num_requests_waiting", "60000ms") + ", 0)", id="arrivals are never below none"
        ),
        pytest.param("ttft", "histogram_quantile(0.95, max by (" + BY + ", le) (rate(", id="a percentile is a share"),
        pytest.param("ttft", '"percentile", "95", "", "")', id="and is told by its number"),
        pytest.param("age", f'time() - max by ({BY}) (timestamp(vllm:num_requests_running{{a="b"}})', id="how old"),
    ],
)
def test_what_a_query_says(query: str, holds: str) -> None:
    assert holds in promql.queries(Windows(60, 300), {"a": "b"}, [95])[query]


def test_a_ratio_is_of_two_rates_over_one_window() -> None:
    hits, queries = (_once("rate", f"vllm:prefix_cache_{name}_total", "300000ms") for name in ("hits", "queries"))
    found = promql.queries(Windows(60, 300), {"a": "b"}, [95])["prefix"]
    assert hits.removesuffix("))") in found
    assert queries.removesuffix("))") in found
    assert ") >= 0" in found


@pytest.mark.parametrize(
    ("wanted", "asked_for"),
    [
        pytest.param([], {"95"}, id="none: the last but one of the list"),
        pytest.param([95, 95, 91], {"95"}, id="each once"),
        pytest.param([50, 99], {"50", "99"}, id="those wanted"),
    ],
)
def test_percentiles_that_are_asked_for(wanted: list[int], asked_for: set[str]) -> None:
    found = promql.queries(Windows(60, 300), {}, wanted)["ttft"]
    assert set(re.findall(r'"percentile", "(\d+)"', found)) == asked_for
    assert found.count('"percentile"') == len(asked_for)


def test_a_window_is_told_to_the_millisecond() -> None:
    found = promql.queries(Windows(0.25, 1.5), {}, [95])
    assert "[250ms]" in found["peak"]
    assert "[1500ms]" in found["ttft"]


def test_no_label_is_no_selector() -> None:
    assert promql.selector({}) == ""
    assert promql.selector({"b": "2", "a": "1\n"}) == '{a="1\\n",b="2"}'
    assert promql.targets(["a"], {"c": "d"}) == 'max by (namespace, pod) (up{c="d",pod=~"a"})'
