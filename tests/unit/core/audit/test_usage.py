"""What was used against what is held: GPUs to free, and how sure that is."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.audit.usage import Usage, freed, said
from plimsoll.core.workloads.server import Server
from tests.unit.core.audit.deployments import deployment, judged

WEEK = Usage(hours=168, replicas=4, peak_pools=1.5, peak_running=60, peak_waiting=0, preemptions=0, covered=1.0)


def evidence(*args: str, gpus: int = 1) -> tuple[Server, Evidence]:
    limits = {"nvidia.com/gpu": gpus, "memory": "64Gi"}
    [found] = judged(deployment(container={"resources": {"limits": limits}}, args=list(args)))
    return found.server, found.evidence


def pool_tokens(found: Evidence) -> float:
    assert found.prediction is not None
    return float(found.prediction["kv_cache_size_tokens"])


@pytest.mark.parametrize(
    ("change", "gpus", "needed"),
    [
        pytest.param({}, 2, 2, id="half of four replicas hold the peak"),
        pytest.param({"peak_pools": 3.4}, 0, 4, id="a full fleet has nothing to give"),
        pytest.param({"peak_pools": 0.1}, 2, 2, id="the sequence cap of 64 needs two although the cache is empty"),
        pytest.param({"peak_pools": 0.1, "peak_running": 8}, 3, 1, id="never the last replica"),
        pytest.param({"peak_running": 8, "peak_waiting": 300}, 0, 4, id="who waits counts too"),
        pytest.param({"preemptions": 3}, 1, 3, id="preemptions say that more was wanted than was in use"),
    ],
)
def test_replicas_to_free(change: dict[str, Any], gpus: int, needed: int) -> None:
    server, found = evidence()
    verdict = freed(server, found, replace(WEEK, pool_tokens=pool_tokens(found), **change))
    assert verdict is not None
    assert (verdict.gpus, verdict.replicas_needed) == (gpus, needed)


@pytest.mark.parametrize("missing", ["peak_pools", "preemptions"])
def test_what_is_missing_is_not_zero(missing: str) -> None:
    server, found = evidence()
    change: dict[str, Any] = {missing: None}
    usage = replace(WEEK, **change)
    assert freed(server, found, usage) is None
    assert "too little is known" in said(server, usage, None)


def test_a_narrower_engine_where_the_planner_says_that_it_holds_the_peak() -> None:
    server, found = evidence("--tensor-parallel-size", "2", gpus=2)
    usage = replace(WEEK, replicas=1, peak_pools=0.05, peak_running=8, pool_tokens=pool_tokens(found))
    verdict = freed(server, found, usage)
    assert verdict is not None
    assert (verdict.gpus, verdict.tensor_parallel) == (1, 1)
    full = freed(server, found, replace(usage, peak_pools=0.85))
    assert full is not None
    assert (full.gpus, full.tensor_parallel) == (0, None)


@pytest.mark.parametrize(
    ("change", "confidence"),
    [
        pytest.param({}, "high", id="a week, all samples, the pool that was foreseen"),
        pytest.param({"hours": 2}, "medium", id="two hours"),
        pytest.param({"hours": 2, "covered": 0.1}, "low", id="two hours with holes"),
        pytest.param({"pool_tokens": 5.0}, "medium", id="another pool than was foreseen"),
    ],
)
def test_confidence(change: dict[str, Any], confidence: str) -> None:
    server, found = evidence()
    verdict = freed(server, found, replace(WEEK, **{"pool_tokens": pool_tokens(found), **change}))
    assert verdict is not None
    assert verdict.confidence == confidence
    assert (verdict.why == ()) == (confidence == "high")
