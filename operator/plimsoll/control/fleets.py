"""The two workloads that a service may have: the one its plan runs on, and one of the other kind that has to go."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from plimsoll.adapters.ports import Kind, Object
from plimsoll.control.children import Live, address
from plimsoll.core import rollout
from plimsoll.core.handover import Handover, Wish, decide
from plimsoll.core.kinds import Kinds
from plimsoll.core.live import LiveFleet, read_live, template_hash
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.manifests.workload import Workload, workload_of, workloads
from plimsoll.core.ownership import judge
from plimsoll.core.pods import PodState
from plimsoll.core.request import Request
from plimsoll.core.rollout import Target
from plimsoll.core.steps import Policy, Progress, Step


@dataclass(frozen=True)
class Fleets:
    """Which workload is meant, and what is there of either."""

    mine: Workload
    other: Workload
    found: Object | None
    """The one that is meant, when it is ours."""
    live: LiveFleet | None
    """The same, as read."""
    old: LiveFleet | None
    """The one of the other kind, when it is ours."""
    unseen: bool
    """Workloads of the kind that is meant cannot be read now."""

    @classmethod
    def of(cls, request: Request, target: Target, live: Live, kinds: Kinds) -> "Fleets":
        """The workloads of one service; without a plan the usual one is meant."""
        one_node, several = workloads(request.name)
        mine = workload_of(request.name, target.revision) if target.revision else one_node
        other = one_node if mine == several else several
        found, old = (_ours(request, live.get(address(each))) for each in (mine, other))
        unseen = mine == several and not kinds.usable(mine.kind)
        return cls(mine, other, found, _read(found), _read(old), unseen)

    def settled(self, on: Revision) -> bool:
        """Whether all pods are of this revision: the workload has its template, and none is left of another one."""
        live = self.live
        return (
            self.old is None
            and live is not None
            and not live.mixed
            and live.template_hash == template_hash(on.template)
        )

    @property
    def place(self) -> tuple[Kind, str]:
        """Where the workload that is meant is found."""
        return address(self.mine)

    def handover(self, target: Target, wanted: int, policy: Policy, progress: Progress) -> Handover:
        """How many replicas of each; a fleet without a plan for its new spec is left as it is."""
        if self.old is None or target.revision is None:
            return Handover(wanted, None)
        if target.frozen:
            return Handover(self.live.asked if self.live else 0, self.old.asked)
        wish = Wish(wanted, rollout.gpus_per_replica(target.revision), policy.max_gpus, policy.may_recreate)
        ready = self.live.ready if self.live else 0
        return decide(self.old, wish, ready=ready, unplaced_seconds=progress.unplaced_seconds)

    def seen(self, pods: Iterable[PodState], wanted: int) -> LiveFleet | None:
        """What serves, for the status: told from pods where the workload cannot be read, from the old fleet where the
        new one is not there yet.
        """
        if self.unseen:
            serving = sum(pod.phase == "ready" and pod.serves for pod in pods)
            return LiveFleet(asked=wanted, replicas=serving, ready=serving, updated=0, seen=False, template={})
        if self.live is None and self.old is not None:
            return LiveFleet(asked=0, replicas=0, ready=0, updated=0, seen=False, template={})
        return self.live


def limited(step: Step, handover: Handover) -> Step:
    """The step of the fleet that is meant, within what the old one leaves it; nothing of it where that is nothing."""
    starts = handover.replicas > 0 or handover.old_replicas is None
    return replace(
        step,
        revision=step.revision if starts else None,
        replicas=min(step.replicas, handover.replicas),
        why=handover.why or step.why,
        waiting=handover.waiting or step.waiting,
    )


def _read(found: Object | None) -> LiveFleet | None:
    return None if found is None else read_live(found)


def _ours(request: Request, found: Object | None) -> Object | None:
    return found if found is not None and judge(found, request.name, request.uid).verdict == "ours" else None
