"""What is recorded of an experiment's beginning suffices to propose the same change, and to let it be tried, again."""

import json
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core import replay
from plimsoll.core.experiment import Timing
from plimsoll.core.ledger import Entry, logged
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan, to_json
from plimsoll.core.planned import Asked
from plimsoll.core.proposed import Opening, Weighed, weighed
from plimsoll.core.replay import Again, Begun, again
from plimsoll.core.retune import NOTHING_SEEN, Recommendation, Seen

SPEC = {
    "model": {"id": "Qwen/Qwen3-8B"},
    "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 4},
    "contextTokens": 8192,
    "load": {"concurrency": 2, "promptTokens": 500, "outputTokens": 100},
}
SETTINGS = ("MaxNumSeqs", "MaxNumBatchedTokens", "GPUMemoryUtilization", "KVCacheMemoryBytes", "KVCacheDtype")
OPEN = Opening(SETTINGS, False, (100.0,), 50_000.0, Timing())


def proposal(
    finding: str = "SequenceCapBound",
    *,
    kept: dict[str, str] | None = None,
    failed: tuple[tuple[str, str], ...] = (),
    seen: Seen = NOTHING_SEEN,
    **spec: Any,
) -> tuple[Weighed, Recommendation]:
    asked = Asked(VLLMServiceSpec.model_validate(SPEC | spec), bundled_config("Qwen/Qwen3-8B"), Inventory())
    plan = asked.plan()
    assert isinstance(plan, Plan)
    runs = {**to_json(plan), "plannedReplicas": 2}
    told = weighed(asked, runs, finding, "9 wait", kept or {}, failed, OPEN.allowed, seen)
    found = told.again()
    assert found is not None
    return told, found


def entry(told: Weighed, found: Recommendation, opening: Opening = OPEN) -> dict[str, Any]:
    """As a reader of the log finds it."""
    before, after = (f"{found.change.flag} {each}" for each in (found.before, found.change.after))
    made = Entry("Retune", "Trying", found.why, before, after, grounds=replay.written(Begun(told, opening)))
    read: dict[str, Any] = json.loads(json.dumps(logged(made, "2027-01-15T08:00:00Z"), allow_nan=False))
    return read


def made_again(told: dict[str, Any]) -> Again:
    found = again(told)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("finding", "more"),
    [
        pytest.param("SequenceCapBound", {}, id="a cap"),
        pytest.param("SequenceCapBound", {"kept": {"--max-num-batched-tokens": "4096"}}, id="beside one that was kept"),
        pytest.param("KVBound", {}, id="the pool"),
        pytest.param("KVBound", {"seen": Seen(pool_blocks=5000)}, id="the pool that pods report"),
        pytest.param("KVBound", {"failed": (("--gpu-memory-utilization", "0.95"),)}, id="the next after a failure"),
        pytest.param("PrefillBound", {}, id="the step"),
        pytest.param("SequenceCapBound", {"engine": {"extraArgs": ["--api-key=hunter2"]}}, id="a user's own flags"),
    ],
)
def test_the_same_is_proposed_and_begun_again(finding: str, more: dict[str, Any]) -> None:
    told = entry(*proposal(finding, **more))
    assert len(json.dumps(told)) < 8000
    assert "hunter2" not in json.dumps(told)
    assert made_again(told).same_as(told)


@pytest.mark.parametrize(
    ("opening", "reason", "says"),
    [
        pytest.param(replace(OPEN, allowed=("PrefixCaching",)), "Proposed", "waits for a person", id="not allowed"),
        pytest.param(replace(OPEN, ended=(49_000.0,)), "NotNow", "less than 60 minutes", id="too early"),
        pytest.param(replace(OPEN, ended=(1.0, 2.0, 3.0, 4.0)), "NotNow", "4 experiments in a day", id="the budget"),
    ],
)
def test_what_nobody_would_allow_now_says_so(opening: Opening, reason: str, says: str) -> None:
    told = entry(*proposal(), opening)
    made = made_again(told)
    assert not made.same_as(told)
    assert made.reason == reason
    assert says in made.message
    approved = entry(*proposal(), replace(opening, approved=True))
    assert made_again(approved).same_as(approved)


def test_another_proposal_shows() -> None:
    told = entry(*proposal())
    told["grounds"]["weighed"]["failed"] = [["--max-num-seqs", told["to"].split()[1]]]
    assert made_again(told).message == "nothing would be proposed"
    told = entry(*proposal("KVBound"))
    told["grounds"]["weighed"]["failed"] = [["--gpu-memory-utilization", told["to"].split()[1]]]
    made = made_again(told)
    assert not made.same_as(told)
    assert made.after != told["to"]
