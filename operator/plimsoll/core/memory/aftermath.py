"""Memory outside ``gpu_memory_utilization``: what is taken before vLLM counts, and what comes after the pool."""

from typing import Final

from plimsoll.core.memory.step import Step

# Driver context and cuBLAS; NCCL's first buffers in a group (free memory at start in public logs: 0.5, 1.5 to 2.1 GiB).
_CONTEXT_BYTES: Final = 1 << 29
_GROUP_BYTES: Final = 3 << 29
_OTHER_CONTEXT_BYTES: Final = 1 << 28
# Private pools of one layer's graph of one size, before 0.21 captured outside the budget.
_GRAPH_BYTES: Final = 460_000
_EXPERT_GRAPH_BYTES: Final = 840_000
# Partial sums of mxfp4 experts on SM90 (Triton), in float32, of gate, up and output; copies alive at once.
_PARTIAL_SUMS: Final = 2.5
_FLOAT32: Final = 4


def context_bytes(step: Step) -> int:
    """What a device has less before vLLM takes its first snapshot; groups were measured from 0.19 on."""
    if not step.cuda:
        return _OTHER_CONTEXT_BYTES
    return _GROUP_BYTES if step.world > 1 and step.version.at_least(19) else _CONTEXT_BYTES


def after_kv_bytes(step: Step) -> int:
    """What is allocated after the pool and not inside the budget; nothing is known of other vendors."""
    if not step.cuda:
        return 0
    graphs = 0
    if not step.version.at_least(21):
        graphs = step.layers * step.captured * (_EXPERT_GRAPH_BYTES if step.experts else _GRAPH_BYTES)
    return graphs + _partial_sums(step)


def _partial_sums(step: Step) -> int:
    if step.experts is None or not step.unfused_experts:
        return 0
    width = 2 * step.rank_expert_width + step.experts.hidden
    return round(_PARTIAL_SUMS * step.tokens * step.experts_per_token * width * _FLOAT32)
