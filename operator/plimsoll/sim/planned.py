"""The simulated engine of a plan: its pool, limits and step times, read back from the plan's own argv."""

from typing import Final

from plimsoll.core.kv import EngineOptions, KVLayout, plan_layout
from plimsoll.core.kv.grouping import Group
from plimsoll.core.latency import step_times
from plimsoll.core.plan.extra_args import argv_flags
from plimsoll.core.plan.result import Plan
from plimsoll.core.serve_flags import read_serve_flags
from plimsoll.facts import gpus
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.models import ModelFacts
from plimsoll.sim.blocks import BlockPool
from plimsoll.sim.engine import EngineLimits
from plimsoll.sim.models import EngineModel
from plimsoll.sim.steps import ModelledSteps

_FAR_TOKENS: Final = 1 << 24


class NoEngineError(ValueError):
    """A plan that cannot be simulated; the message says why."""


def engine_of(plan: Plan, facts: ModelFacts) -> EngineModel:
    """One engine of the plan, its pool in the middle of the estimate; NoEngineError when its speed is not known."""
    gpu = gpus.find(plan.choice.gpu)
    if gpu is None:
        raise NoEngineError(f"nothing is known about {plan.choice.gpu}")
    version = EngineVersion.parse(plan.choice.engine_version)
    read = read_serve_flags(argv_flags(plan.choice.args, version), version)
    options = EngineOptions(device=gpu, version=version, **read.options)
    layout = plan_layout(facts, options)
    times = step_times(facts, options)
    if times is None:
        raise NoEngineError(f"bandwidth and FLOP/s of {gpu.name} are not known")
    limits = EngineLimits(layout.resolved.max_num_seqs, layout.resolved.max_num_batched_tokens)
    pool = pool_of(layout, plan.kv.num_blocks)
    return EngineModel(pool, limits, ModelledSteps(times.step_seconds), plan.choice.gpus_per_replica)


def pool_of(layout: KVLayout, num_blocks: int) -> BlockPool:
    """A layout as the simulator sees it. Groups whose blocks hold more tokens than the smallest count as if equal."""
    held = [_held(layout, group) for group in layout.groups]
    growing = [group for group, (short, far) in zip(layout.groups, held, strict=True) if far > short]
    capped = tuple(far for short, far in held if short < far < _FAR_TOKENS // layout.block_tokens // 2)
    states = sum(short for short, far in held if short == far)
    return BlockPool(num_blocks, layout.block_tokens, max(0, len(growing) - len(capped)), capped, states)


def _held(layout: KVLayout, group: Group) -> tuple[int, int]:
    """Blocks of a request of one token and of one without end."""
    in_flight, parallel = layout.resolved.in_flight_tokens, layout.options.decode_context_parallel
    return group.blocks_for(1, in_flight, parallel), group.blocks_for(_FAR_TOKENS, in_flight, parallel)
