"""The two workloads that a service may have: the one its plan runs on, and one of the other kind that has to go."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.adapters.ports import Kind
from plimsoll.control.children import Live, address
from plimsoll.core import handover, rollout
from plimsoll.core.handover import Handover, Old
from plimsoll.core.manifests.workload import Workload, gpus_per_replica, workload_of, workloads
from plimsoll.core.ownership import judge
from plimsoll.core.request import Request
from plimsoll.core.rollout import Target


@dataclass(frozen=True)
class Fleets:
    """Which workload is meant, and what is there of the other kind."""

    mine: Workload
    other: Workload
    old: Mapping[str, Any] | None
    """The live workload of the other kind, when it is ours."""
    ready: int
    """Replicas of the one that is meant which serve."""

    @classmethod
    def of(cls, request: Request, target: Target, live: Live) -> "Fleets":
        """The workloads of one service; without a plan the usual one is meant."""
        one_node, several = workloads(request.name)
        mine = workload_of(request.name, target.revision) if target.revision else one_node
        other = one_node if mine == several else several
        found, status = live.get(address(other)), live.get(address(mine), {}).get("status", {})
        ours = found is not None and judge(found, request.name, request.uid).verdict == "ours"
        return cls(mine, other, found if ours else None, int(status.get("readyReplicas", 0)))

    @property
    def place(self) -> tuple[Kind, str]:
        """Where the workload that is meant is found."""
        return address(self.mine)

    def step(self, request: Request, target: Target, replicas: int) -> Handover:
        """What to run now of each. A fleet without a plan for its new spec is left as it is."""
        if self.old is None or target.revision is None:
            return Handover(replicas, None)
        old = Old(int(self.old["spec"].get("replicas", 1)), gpus_per_replica(self.old))
        if target.frozen:
            return Handover(replicas, old.replicas)
        return handover.decide(
            old,
            wanted=replicas,
            gpus_per_replica=rollout.gpus_per_replica(target.revision),
            max_gpus=request.spec.hardware.max_gpus,
            ready=self.ready,
        )
