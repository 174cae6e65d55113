"""Whether a replica that spans several nodes can be rolled out here. Pure: the plan and what the cluster has."""

from collections.abc import Iterator
from typing import Final

from plimsoll.core.kinds import LEADER_WORKER_SET, Kinds
from plimsoll.core.manifests.nodes import first_release, spans_nodes
from plimsoll.core.plan.result import Plan

_BACKEND: Final = "--distributed-executor-backend"


def refusal(plan: Plan, kinds: Kinds) -> str | None:
    """Why the plan cannot be rolled out, with a way out; None for one node, or when it can."""
    choice = plan.choice
    if choice.nodes_per_replica == 1:
        return None
    why = next(_reasons(plan, kinds), None)
    if why is None:
        return None
    return (
        f"spec.hardware: a replica would need {choice.nodes_per_replica} nodes ({choice.gpus_per_replica} GPUs "
        f"{choice.gpu}, TP {choice.tensor_parallel}, PP {choice.pipeline_parallel}), and {why}; or allow a larger GPU "
        "in hardware.gpus, or use a quantised checkpoint"
    )


def _reasons(plan: Plan, kinds: Kinds) -> Iterator[str]:
    choice, found = plan.choice, kinds.of(LEADER_WORKER_SET)
    if found.access == "absent":
        yield f"replicas over several nodes need LeaderWorkerSet: {found.why}. Install it (no restart is needed)"
    elif found.access != "usable":
        yield f"replicas over several nodes need LeaderWorkerSet: {found.why}"
    if not spans_nodes(choice.engine_version):
        yield (
            f"spec.engine.version: vLLM {choice.engine_version} spans nodes through a Ray cluster only, which is not "
            f"offered; use {first_release()} or newer"
        )
    backend = _value(choice.args, _BACKEND)
    if backend not in (None, "mp"):
        yield f"spec.engine.extraArgs: {_BACKEND} {backend} does not span nodes here; leave it out"
    if plan.host.exclusive_volume:
        yield "its pods mount a volume that only one node may; use a ReadWriteMany or ReadOnlyMany claim"
    if choice.gpus_per_replica % choice.nodes_per_replica:
        yield "its GPUs cannot be spread evenly over them; choose sizes in engine.extraArgs whose product can"


def _value(args: tuple[str, ...], flag: str) -> str | None:
    """The flag's last value on the command line."""
    value = None
    for arg, following in zip(args, (*args[1:], ""), strict=True):
        if arg == flag:
            value = following
        elif arg.startswith(f"{flag}="):
            value = arg.partition("=")[2]
    return value
