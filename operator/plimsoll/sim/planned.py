"""The simulated engine of a plan: its pool, limits and step times, read back from the plan's own argv."""

from typing import Final

from plimsoll.core.kv import KVLayout
from plimsoll.core.kv.grouping import Group
from plimsoll.core.latency import step_times
from plimsoll.core.plan.model import ModelConfig
from plimsoll.core.plan.readback import planned_engine
from plimsoll.core.plan.result import Plan
from plimsoll.sim.blocks import BlockPool
from plimsoll.sim.engine import EngineLimits
from plimsoll.sim.models import EngineModel
from plimsoll.sim.steps import ModelledSteps

_FAR_TOKENS: Final = 1 << 24


class NoEngineError(ValueError):
    """A plan that cannot be simulated; the message says why."""


def engine_of(plan: Plan, config: ModelConfig) -> EngineModel:
    """One engine of the plan, its pool in the middle of the estimate; NoEngineError when it or its speed is unknown."""
    engine = planned_engine(plan, config)
    if engine is None:
        raise NoEngineError(f"the plan's arguments do not give its engine back on {plan.choice.gpu}")
    times = step_times(engine.facts, engine.options, engine.flags)
    if times is None:
        raise NoEngineError(f"bandwidth and FLOP/s of {plan.choice.gpu} are not known")
    resolved = engine.layout.resolved
    limits = EngineLimits(resolved.max_num_seqs, resolved.max_num_batched_tokens, resolved.prefix_caching)
    pool = pool_of(engine.layout, plan.kv.num_blocks)
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
