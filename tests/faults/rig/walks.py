"""Walks over specs: whatever way led to a spec, what comes of it is what a fresh object with that spec gets."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from plimsoll.adapters.ports import DEPLOYMENTS, REVISIONS
from plimsoll.api import names
from tests.faults.rig.endstate import state
from tests.faults.world.world import PRODUCT, World, service

NAME: Final = "qwen"
SETTLED_SECONDS: Final = 240.0
NODES: Final = ((PRODUCT, 4), (PRODUCT, 4), ("NVIDIA-H100-80GB-HBM3", 4))

VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "contextTokens": (8192, 16384, 24576),
    "model": ({"id": "Qwen/Qwen3-8B"}, {"id": "Qwen/Qwen3-4B"}),
    "hardware": ({"gpu": PRODUCT}, {"gpu": "NVIDIA-H100-80GB-HBM3"}, {"gpu": PRODUCT, "maxGPUs": 3}),
    "scaling": ({"mode": "Fixed"}, {"mode": "External"}),
    "replicas": (1, 2, 3),
    "engine": ({"version": "0.32.0"}, {"version": "0.28.0"}, {"version": "0.32.0", "extraArgs": ["--max-num-seqs=64"]}),
    "podTemplate": ({"metadata": {"labels": {"team": "a"}}}, {"metadata": {"labels": {"team": "b"}}}),
    "objective": ("Balanced", "Latency"),
}
Spec = dict[str, Any]


def first() -> Spec:
    """The spec that walks begin at."""
    return {field: values[0] for field, values in VALUES.items()}


def edits(count: int, seed: int) -> list[Spec]:
    """Specs on the way, each of which differs from the one before in one field."""
    chosen, found, spec = random.Random(seed), [], first()
    for _ in range(count):
        field = chosen.choice([*VALUES])
        others = [value for value in VALUES[field] if value != spec[field]]
        spec = {**spec, field: chosen.choice(others)}
        found.append(spec)
    return found


def settled(world: World) -> Any:
    """What has come of the spec after a while, without the traces of how it came to be."""
    world.run(SETTLED_SECONDS)
    return reached(world)


def reached(world: World) -> Any:
    """The state without what tells of the way: kept revisions, and how the last roll-out replaced pods."""
    found = {what: value for what, value in state(world).items() if not what.startswith(REVISIONS.kind)}
    for what, value in found.items():
        if what == "pods":
            continue
        value["managers"] = {}  # they name the owner by its uid, and so does the hash of the intent
        annotations = value["metadata"].get("annotations", {})
        for annotation in (names.ANNOTATION_WAY, names.ANNOTATION_HASH):
            annotations.pop(annotation, None)
        if what.startswith(DEPLOYMENTS.kind):
            value["spec"].pop("strategy")
    return found


def fresh(spec: Spec, nodes: tuple[tuple[str, int], ...] = NODES) -> Any:
    """What a new object with this spec gets."""
    return walk([spec], [0.0], nodes)


def walk(specs: Sequence[Spec], pauses_seconds: Sequence[float], nodes: tuple[tuple[str, int], ...] = NODES) -> Any:
    """What comes of specs that are applied one after the other."""
    with World(nodes=nodes, prometheus_configured=False) as world:
        operator = world.start_operator()
        world.until(lambda: operator.leads)
        for spec, pause in zip(specs, pauses_seconds, strict=True):
            world.apply(service(NAME, **spec))
            world.run(pause)
        found = settled(world)
        assert not world.unexpected.found, world.unexpected.found[0]
        return found
