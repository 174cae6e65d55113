"""How pods are replaced: with a spare GPU a new one first, else an old one gives way. Pure.

A surge that finds no GPU is a deadlock with ``maxUnavailable: 0``; a fleet of one that gives way is an outage. So the
way follows from the GPUs that are free, and an outage needs the user's word.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from plimsoll.core.capacity import NAMED, Room

Way = Literal["Surge", "OneAtATime", "AllAtOnce", "Recreate"]
SAID: Final[Mapping[Way, str]] = {
    "Surge": "each new pod is there before an old one goes",
    "OneAtATime": "an old pod gives way to each new one",
    "AllAtOnce": "no pod is worth keeping, all are replaced together",
    "Recreate": "the old pods end before new ones start",
}


@dataclass(frozen=True)
class Choice:
    """The way, and why; no way: wait, the fleet goes on as it is."""

    way: Way | None
    why: str
    lasting: bool = False
    """Waiting alone will not help."""


@dataclass(frozen=True)
class Situation:
    """What the choice depends on."""

    replicas: int
    serving: int
    """Pods that serve, or did until a moment ago."""
    starting: int
    """Pods that load: they will serve."""
    has_surplus: bool
    """One more pod than wanted exists already: its place is ours."""
    gpus_per_replica: int
    """Of the larger of both templates: old and new pods stand side by side."""
    max_gpus: int
    room: Room | None
    """None: the operator may not look at nodes and pods."""
    pods_per_replica: int = 1
    """More than one where a replica spans nodes: all of them need a place."""
    on_demand: int | None = None
    """GPUs of the product that the cluster could add; None: it adds none."""
    may_recreate: bool = False
    exclusive: bool = False
    """The pods mount a volume that no second pod, or none on another node, may mount meanwhile (D21)."""
    nowhere: str = ""
    """Why one more pod has no place, whatever is free; empty: nobody says so."""

    @property
    def most(self) -> int:
        """Replicas that ``maxGPUs`` allows at once."""
        return self.max_gpus // max(1, self.gpus_per_replica)


def choose(now: Situation) -> Choice:
    """The way to replace the pods of a fleet whose template changes."""
    if now.serving == 0:
        way: Way = "OneAtATime" if now.starting else "AllAtOnce"
        return Choice(way, f"no replica serves: {SAID[way]}")
    missing = _why_no_surge(now)
    if not missing:
        return Choice("Surge", f"there is room for one more: {SAID['Surge']}")
    if now.replicas > 1:
        return Choice("OneAtATime", f"{missing}: {SAID['OneAtATime']}")
    if now.may_recreate:
        return Choice("Recreate", f"{missing}: {SAID['Recreate']} (spec.rollout.noSpareGPU: Recreate)")
    return Choice(None, missing, lasting=now.exclusive or now.room is None or now.most < now.replicas + 1)


def rolling(way: Way) -> dict[str, int | str]:
    """``maxSurge`` and ``maxUnavailable`` of a rolling update."""
    surge, unavailable = {"Surge": (1, 0), "OneAtATime": (0, 1)}.get(way, (0, "100%"))
    return {"maxSurge": surge, "maxUnavailable": unavailable}


def strategy(way: Way) -> dict[str, Any]:
    """A Deployment's strategy."""
    return {"type": "Recreate"} if way == "Recreate" else {"type": "RollingUpdate", "rollingUpdate": rolling(way)}


def _why_no_surge(now: Situation) -> str:
    """Empty when one more replica may and can stand beside the others."""
    if now.most < now.replicas + 1:
        needed = (now.replicas + 1) * now.gpus_per_replica
        return f"one more replica would make {needed} GPUs, hardware.maxGPUs is {now.max_gpus}"
    if now.exclusive:
        return "the pods mount a volume that only one of them may have at a time"
    if now.nowhere:
        return now.nowhere
    if now.has_surplus or (now.on_demand or 0) >= now.gpus_per_replica:
        return ""
    if now.room is None:
        return "the operator may not list nodes and pods, so no GPU counts as free"
    return "" if now.room.fits >= now.pods_per_replica else no_room(now.room)


def no_room(room: Room) -> str:
    """Why no node takes another pod, in one stable sentence part."""
    if not room.matching:
        return "no node of the GPU product is in the cluster"
    parts = []
    if room.open:
        parts.append(f"{room.gpus_free} of {room.gpus_free + room.gpus_taken} GPUs on {_nodes(room.open)} are free")
    parts += [f"{node} has the taint {taint}" for node, taint in sorted(room.tainted.items())[:NAMED]]
    if room.away:
        parts.append(f"{_nodes(room.away)} cordoned or not Ready")
    if room.without_gpu:
        parts.append(f"{_nodes(room.without_gpu)} labelled with the product but without a GPU to give")
    return "no node takes another pod: " + ", ".join(parts)


def _nodes(names: tuple[str, ...]) -> str:
    named = ", ".join(sorted(names)[:NAMED])
    return named if len(names) <= NAMED else f"{named} and {len(names) - NAMED} more"
