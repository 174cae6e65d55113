"""What is asked of Prometheus. That a real one understands it is tested in ``e2e/test_metrics.py``."""

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
