"""Autoscalers as others built them, each by its own rules, to compare with ours. A name, and its one knob."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from plimsoll.sim.fleet import Policy
from plimsoll.sim.models import EngineModel
from plimsoll.sim.policies.aibrix import AibrixApa
from plimsoll.sim.policies.dynamo import DynamoLoad
from plimsoll.sim.policies.hpa import HpaKv, KedaWaiting
from plimsoll.sim.policies.knative import Knative
from plimsoll.sim.policies.ray_serve import RayServe
from plimsoll.sim.policies.static import Static
from plimsoll.sim.policies.wva import HPA_WINDOW_SECONDS, WvaV1, WvaV2


@dataclass(frozen=True)
class PolicyKind:
    """A policy by name: ``make(knob, engine)``, its own default, and the values to sweep when costs are compared."""

    make: Callable[[float, EngineModel], Policy]
    knob: str
    default: float
    sweep: tuple[float, ...]


def _wva_v2(knob: float, engine: EngineModel) -> Policy:
    return WvaV2(
        HPA_WINDOW_SECONDS,
        knob,
        block_size_tokens=engine.pool.block_size_tokens,
        max_num_seqs=engine.limits.max_num_seqs,
        max_num_batched_tokens=engine.limits.max_num_batched_tokens,
    )


POLICIES: Final[Mapping[str, PolicyKind]] = {
    "hpa-kv": PolicyKind(lambda k, _: HpaKv(k), "target KV use", 0.5, (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)),
    "keda-waiting": PolicyKind(lambda k, _: KedaWaiting(k), "waiting requests a replica", 5, (1, 2, 5, 10, 20)),
    "knative": PolicyKind(lambda k, _: Knative(k), "container concurrency", 100, (8, 16, 24, 34, 50, 100)),
    "aibrix-apa": PolicyKind(lambda k, _: AibrixApa(k), "target KV use", 0.5, (0.3, 0.4, 0.5, 0.6, 0.7)),
    "wva-v1": PolicyKind(lambda k, _: WvaV1(HPA_WINDOW_SECONDS, k), "saturated KV use", 0.8, (0.4, 0.5, 0.6, 0.7, 0.8)),
    "wva-v2": PolicyKind(_wva_v2, "target share of capacity", 0.85, (0.5, 0.6, 0.7, 0.85, 1.0)),
    "dynamo-load": PolicyKind(
        lambda k, e: DynamoLoad(k, e.pool.block_size_tokens), "KV load that adds a worker", 1.0, (0.4, 0.6, 0.8, 1.0)
    ),
    "ray-serve": PolicyKind(lambda k, _: RayServe(k), "ongoing requests a replica", 2, (2, 8, 16, 24, 34, 48)),
    "static": PolicyKind(lambda k, _: Static(int(k)), "replicas", 1, tuple(range(1, 65))),
}
"""By the name that ``plimsoll simulate --policy`` takes."""
