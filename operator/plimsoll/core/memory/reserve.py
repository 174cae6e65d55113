"""What an engine takes beside weights and KV: activations at their peak, graphs, driver and libraries.

The profile run computes one step of ``max_num_batched_tokens`` dummy tokens, then samples for ``max_num_seqs`` of
them; the peak is the larger of the two, on top of what stays allocated (``vllm-memory.md`` 4.2 to 4.4).
"""

from dataclasses import dataclass
from typing import Final

from plimsoll.core.memory.coefficients import Coefficients
from plimsoll.core.plan.result import MemoryItem
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.models import ModelFacts

ELEMENT_BYTES: Final = 2
_FIT: Final = "fit of public start-up logs (tools/fit_memory.py)"


@dataclass(frozen=True, slots=True)
class Step:
    """The shape of one engine step and of the ranks that compute it."""

    tokens: int
    seqs: int
    tensor_parallel: int
    world: int
    version: EngineVersion
    eager: bool
    samples: bool


def reserve(facts: ModelFacts, step: Step, fit: Coefficients) -> tuple[MemoryItem, ...]:
    """Items beside weights, largest rank. Source of each size: its function."""
    return (
        MemoryItem("activations", activation_bytes(facts, step, fit), "fitted", _FIT),
        MemoryItem("moe_workspace", moe_workspace_bytes(facts, step, fit), "fitted", _FIT),
        MemoryItem("non_torch", non_torch_bytes(step, fit), "fitted", _FIT),
        MemoryItem("cuda_graphs", graph_bytes(step, fit), "assumed", "vLLM subtracts an estimate from 0.21 on"),
    )


def activation_bytes(facts: ModelFacts, step: Step, fit: Coefficients) -> int:
    """Peak of one step: one layer's intermediate tensors, or hidden states and the sampler's copies of the logits."""
    dims = facts.dims
    hidden = step.tokens * dims.hidden_size * ELEMENT_BYTES
    wide = 3 * _widest(facts) // step.tensor_parallel + 4 * dims.hidden_size
    layer = fit.layer_activations * step.tokens * wide * ELEMENT_BYTES
    per_logit = fit.sample_bytes_per_logit if step.version.at_least(19) else fit.sort_bytes_per_logit
    logits = min(step.seqs, step.tokens) * dims.vocab_size if step.samples else 0
    return round(max(layer, fit.hidden_states * hidden + per_logit * logits) + fit.fixed_bytes)


def _widest(facts: ModelFacts) -> int:
    dims = facts.dims
    return dims.intermediate_size if dims.experts <= 1 else dims.expert_intermediate_size


def moe_workspace_bytes(facts: ModelFacts, step: Step, fit: Coefficients) -> int:
    """Two buffers for the tokens of all chosen experts. Source: vLLM ``fused_moe``, ``workspace_shapes``."""
    dims = facts.dims
    if dims.experts <= 1 or facts.quantisation.method in {"mxfp4", "gpt_oss_mxfp4"}:
        return 0
    width = dims.expert_intermediate_size // step.tensor_parallel
    rows = step.tokens * max(1, dims.experts_per_token)
    both = max(2 * width, dims.hidden_size) + max(width, dims.hidden_size)
    return round(fit.moe_workspace * rows * both * ELEMENT_BYTES)


def non_torch_bytes(step: Step, fit: Coefficients) -> int:
    """Driver and library memory: more with NCCL from 0.19 on, when its buffers began to count."""
    if not step.version.at_least(19):
        return fit.non_torch_before_bytes
    return fit.non_torch_group_bytes if step.world > 1 else fit.non_torch_single_bytes


def graph_bytes(step: Step, fit: Coefficients) -> int:
    """What vLLM sets aside for CUDA graphs: nothing before 0.21, nothing in eager mode."""
    return 0 if step.eager or not step.version.at_least(21) else fit.graph_bytes
