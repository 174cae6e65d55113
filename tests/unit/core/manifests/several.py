"""A service whose replicas span two nodes of eight GPUs, planned for real."""

from functools import cache
from typing import Any, Final

from plimsoll.core import rollout
from plimsoll.core.kinds import LEADER_WORKER_SET, Availability, Kinds
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.request import Request, read_request

SPEC: Final[dict[str, Any]] = {
    "model": {"id": "deepseek-ai/DeepSeek-V3.2"},
    "hardware": {"gpu": "NVIDIA-H100-80GB-HBM3", "maxGPUs": 16},
    "contextTokens": 65536,
}
WITH_SETS: Final = Kinds({LEADER_WORKER_SET: Availability("usable")})


def request(name: str = "svc", **spec: Any) -> Request:
    meta = {"namespace": "ns", "name": name, "uid": "u", "generation": 1}
    return read_request({"metadata": meta, "spec": {**SPEC, **spec}})


@cache
def plan() -> Plan:
    asked = request()
    found = plan_service(asked.spec, asked.minimum_replicas, bundled_config(asked.spec.model.id))
    assert isinstance(found, Plan)
    assert found.choice.nodes_per_replica == 2
    return found


def revision(name: str = "svc") -> Revision:
    return rollout.render(request(name), plan(), 1)
