"""Situations a service can be in, as facts, and the object that each makes: for people, Flux and Argo CD to judge."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

from plimsoll.api import names
from plimsoll.core.conditions import Condition, Contest, Facts, Fleet, Problem, decide, merge
from plimsoll.core.obstacle import Obstacle

SERVING: Final = Fleet(wanted=2, floor=2, replicas=2, ready=2, updated_ready=2, rolled_out=True)
LOADING: Final = Fleet(wanted=2, floor=2, replicas=2, rolled_out=True, pods={"loading": 2})
PASSING: Final = Obstacle("GPUFault", "the engine ended with exit code 1")
LASTING: Final = Obstacle("BadFlag", "the engine ended with exit code 2", lasting=True)
REFUSED: Final = Problem("KVCacheTooSmall", "131072 tokens need 9 GiB, 6 GiB is left")
HELD: Final = "annotation plimsoll.dev/hold is set: observing only"


def live(facts: Facts, generation: int = 3) -> dict[str, Any]:
    """The VLLMService as the API server holds it after a report of these facts."""
    conditions = merge([], decide(facts), generation, "2026-01-02T03:04:05Z")
    meta = {"name": "svc", "namespace": "llm", "generation": generation}
    status = {"observedGeneration": generation, "conditions": conditions}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "status": status}


def by_type(facts: Facts) -> Mapping[str, Condition]:
    """The conditions these facts make, by their type."""
    return {condition.type: condition for condition in decide(facts)}


_TEXTS: Final = st.sampled_from(["", "because of something"])
_COUNTS: Final = st.integers(0, 4)
PROBLEMS: Final = st.builds(
    Problem, st.sampled_from(["KVCacheTooSmall", "NameConflict", "Forbidden"]), st.just("what to do")
)
FLEETS: Final = st.builds(
    Fleet,
    wanted=_COUNTS,
    floor=_COUNTS,
    replicas=_COUNTS,
    ready=_COUNTS,
    updated_ready=_COUNTS,
    rolled_out=st.booleans(),
    pods=st.dictionaries(st.sampled_from(["ready", "unready", "loading", "pending", "failing"]), _COUNTS),
)
CONTESTS: Final = st.builds(Contest, PROBLEMS, st.booleans())
OBSTACLES: Final = st.builds(
    Obstacle, st.sampled_from(["NoFreeGPU", "BadFlag", "NoSpareGPU"]), st.just("because of something"), st.booleans()
)
OBSERVED: Final = st.tuples(
    *(
        st.builds(Condition, st.just(kind), st.sampled_from(["True", "False", "Unknown"]), st.just("R"), st.just("m"))
        for kind in (names.METRICS_AVAILABLE, names.SLO_MET)
    )
)
_BY_TYPE: Final = {
    bool: st.booleans(),
    str: _TEXTS,
    Problem | None: st.none() | PROBLEMS,
    tuple[Problem, ...] | None: st.none() | st.lists(PROBLEMS, max_size=2).map(tuple),
    Fleet | None: st.none() | FLEETS,
    Contest | None: st.none() | CONTESTS,
    Obstacle | None: st.none() | OBSTACLES,
    tuple[Condition, ...]: st.just(()) | OBSERVED,
}
FACTS: Final = st.builds(Facts, **{f.name: _BY_TYPE[f.type] for f in dataclasses.fields(Facts)})  # type: ignore[index]
"""Any combination of facts; a new field of Facts is part of it as soon as its type is known here."""
