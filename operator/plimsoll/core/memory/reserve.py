"""What an engine takes beside weights and KV: activations at their peak, graphs, driver and libraries.

The profile run encodes the largest images, computes one step of dummy tokens, then samples; the peak is the largest of
the three, on top of what stays allocated. Source: vLLM 0.32 ``v1/worker/gpu_worker.py``, ``gpu_model_runner.py``.
"""

from typing import Final

from plimsoll.core.memory.coefficients import Coefficients
from plimsoll.core.memory.step import Step
from plimsoll.core.plan.result import MemoryItem

_FIT: Final = "fit of public start-up logs (tools/fit_memory.py)"


def reserve(step: Step, fit: Coefficients) -> tuple[MemoryItem, ...]:
    """Items beside weights, on the largest rank; those that are zero are left out."""
    items = (
        MemoryItem("activations", activation_bytes(step, fit), "fitted", _FIT),
        MemoryItem("moe_workspace", moe_workspace_bytes(step, fit), "fitted", f"vLLM's workspace shapes; {_FIT}"),
        MemoryItem("encoder_outputs", encoder_output_bytes(step, fit), "fitted", _FIT),
        MemoryItem("non_torch", non_torch_bytes(step, fit), "fitted", _FIT),
        MemoryItem("cuda_graphs", graph_bytes(step, fit), "assumed", "vLLM subtracts an estimate from 0.21 on"),
    )
    return tuple(item for item in items if item.bytes)


def activation_bytes(step: Step, fit: Coefficients) -> int:
    """Peak of one step: an encoder's patches, one layer's intermediate tensors, or the sampler beside hidden states."""
    return round(fit.fixed_bytes + max(encoder_bytes(step, fit), layer_bytes(step, fit), sampler_bytes(step, fit)))


def layer_bytes(step: Step, fit: Coefficients) -> float:
    """Intermediate tensors of one layer: gate, up and their product, and four of the hidden size."""
    width = 3 * step.rank_mlp_width + 4 * step.hidden
    return fit.layer_activations * step.tokens * width * step.element_bytes


def sampler_bytes(step: Step, fit: Coefficients) -> float:
    """Logits in the model's dtype and the sampler's copies of them, beside a step's hidden states.

    Up to 0.18 top-k and top-p sort all logits, which takes more than twice the copies.
    """
    copies = fit.sample_bytes_per_logit if step.version.at_least(19) else fit.sort_bytes_per_logit
    logits = step.sampled * step.vocabulary * (step.element_bytes + copies)
    return logits + fit.hidden_states * step.tokens * step.hidden * step.element_bytes


def encoder_bytes(step: Step, fit: Coefficients) -> float:
    """A vision tower's tensors for the largest images."""
    if step.tower is None:
        return 0
    return fit.encoder_activations * step.image_patches * step.tower.hidden * step.element_bytes


def encoder_output_bytes(step: Step, fit: Coefficients) -> int:
    """What the encoder's outputs for one step hold until they are used."""
    if step.tower is None:
        return 0
    return round(fit.encoder_outputs * step.tokens * step.hidden * step.element_bytes)


def moe_workspace_bytes(step: Step, fit: Coefficients) -> int:
    """Two buffers for the tokens of all chosen experts. Source: vLLM ``fused_moe``, ``workspace_shapes``."""
    if step.experts is None or step.four_bit_experts:
        return 0
    width, hidden = step.rank_expert_width, step.experts.hidden
    both = max(2 * width, hidden) + max(width, hidden)
    return round(fit.moe_workspace * step.tokens * step.experts_per_token * both * step.element_bytes)


def non_torch_bytes(step: Step, fit: Coefficients) -> int:
    """Driver, NCCL and libraries; before 0.19 NCCL's buffers were there before vLLM began to count."""
    if not step.version.at_least(19):
        return fit.non_torch_before_bytes
    if step.world == 1:
        return fit.non_torch_single_bytes
    return fit.non_torch_group_bytes + fit.non_torch_rank_bytes * step.world


def graph_bytes(step: Step, fit: Coefficients) -> int:
    """What vLLM sets aside for CUDA graphs: nothing before 0.21."""
    return round(fit.graph_bytes * step.layers * step.captured) if step.version.at_least(21) else 0
