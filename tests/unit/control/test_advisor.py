"""Recommendations come with what limits a service, are planned once, and go with it."""

from typing import Any

import pytest

from plimsoll.api import findings
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.control.advisor import Advisor, shown
from plimsoll.control.cache import Key
from plimsoll.core import rollout
from plimsoll.core.diagnose import Finding
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.observed import Observed
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan, Refusal
from plimsoll.core.planned import Asked
from plimsoll.core.pools import Pool
from plimsoll.core.request import Request, read_request
from plimsoll.core.retune import Seen

KEY = Key("llm", "svc")
CAPPED = Finding(findings.SEQUENCE_CAP_BOUND, "8 of at most 8 requests run, 12 wait")
CALM = Finding(findings.HEALTHY, "nothing limits it")


def request_of(**spec: Any) -> Request:
    base = {
        "model": {"id": "Qwen/Qwen3-8B"},
        "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 2},
        "contextTokens": 8192,
        "load": {"concurrency": 2, "promptTokens": 500, "outputTokens": 100},
    }
    return read_request({"metadata": {"name": "svc", "namespace": "llm", "uid": "u"}, "spec": base | spec})


def plan_of(spec: VLLMServiceSpec) -> Plan | Refusal:
    return plan_service(spec, 1, bundled_config("Qwen/Qwen3-8B"))


def revision_of(request: Request) -> Revision:
    plan = plan_of(request.spec)
    assert isinstance(plan, Plan)
    return rollout.render(request, plan, 1)


class Planner:
    """Plans, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.asked = 0

    async def what_if(self, request: Request) -> Asked:
        self.asked += 1
        return Asked(request.spec, bundled_config("Qwen/Qwen3-8B"), Inventory())


@pytest.fixture
def planner() -> Planner:
    return Planner()


@pytest.fixture
def advisor(planner: Planner) -> Advisor:
    return Advisor(planner)  # type: ignore[arg-type]


async def test_it_is_planned_once_while_the_same_limits(advisor: Advisor, planner: Planner) -> None:
    request = request_of()
    revision = revision_of(request)
    first = await advisor.advise(KEY, request, revision, CAPPED, {})
    assert first is not None
    assert first["flag"] == "--max-num-seqs"
    assert int(first["to"]) > int(first["from"])
    later = Finding(findings.SEQUENCE_CAP_BOUND, "8 of at most 8 requests run, 40 wait")
    assert await advisor.advise(KEY, request, revision, later, first) == first
    assert planner.asked == 1
    other = request_of(engine={"extraArgs": ["--max-num-seqs=16"]})
    assert await advisor.advise(KEY, other, revision_of(other), CAPPED, first) is None
    assert planner.asked == 2


@pytest.mark.parametrize(
    ("tuning", "setting"),
    [
        ({"mode": "Auto", "allow": ["MaxNumBatchedTokens"]}, "GPUMemoryUtilization"),
        ({"mode": "Auto", "allow": ["MaxNumSeqs", "KVCacheDtype"]}, "MaxNumSeqs"),
        ({"mode": "Recommend", "allow": ["MaxNumSeqs"]}, "GPUMemoryUtilization"),
    ],
)
async def test_in_auto_what_is_allowed_is_not_hidden_by_what_is_not(
    advisor: Advisor, tuning: dict[str, Any], setting: str
) -> None:
    cautious = {"extraArgs": ["--gpu-memory-utilization=0.85", "--max-num-seqs=256"]}
    request = request_of(tuning=tuning)
    revision = revision_of(request_of(engine=cautious))
    revision.plan["typical"]["blocks"] = revision.plan["kv"]["numBlocks"] // 16
    full = Finding(findings.KV_BOUND, "the pool is full, and 12 wait")
    found = await advisor.advise(KEY, request, revision, full, {})
    assert found is not None
    assert found["setting"] == setting


async def test_it_goes_with_its_reason_and_stays_while_nothing_is_known(advisor: Advisor) -> None:
    request = request_of()
    revision = revision_of(request)
    said = await advisor.advise(KEY, request, revision, CAPPED, {})
    assert said is not None
    assert await advisor.advise(KEY, request, revision, None, said) == said
    assert await advisor.advise(KEY, request, revision, CALM, said) is None


async def test_turned_off_it_says_nothing(advisor: Advisor, planner: Planner) -> None:
    request = request_of(tuning={"mode": "Off"})
    assert await advisor.advise(KEY, request, revision_of(request), CAPPED, {"flag": "--max-num-seqs"}) is None
    assert planner.asked == 0


async def test_what_pods_have_shown_counts(advisor: Advisor, planner: Planner) -> None:
    request = request_of()
    revision = revision_of(request_of(engine={"extraArgs": ["--gpu-memory-utilization=0.85"]}))
    full = Finding(findings.KV_BOUND, "the pool is full, and 12 wait")
    first = await advisor.advise(KEY, request, revision, full, {})
    days = [{"date": "2026-11-29", "prefixHitPercent": 3}, {"date": "2026-11-30"}]
    seen = shown(Observed(pool=Pool("k", revision.plan["kv"]["numBlocks"]), load={"days": days}))
    assert seen == Seen(revision.plan["kv"]["numBlocks"], 3)
    then = await advisor.advise(KEY, request, revision, full, first or {}, seen=seen)
    assert (first or {})["setting"] == "GPUMemoryUtilization"
    assert (then or {})["setting"] == "KVCacheMemoryBytes"
    assert shown(Observed()) == Seen()
    await advisor.advise(KEY, request, revision, full, then or {}, seen=seen)
    assert planner.asked == 2
