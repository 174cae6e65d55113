"""The shape of one engine step and of the ranks that compute it: what activations depend on."""

from dataclasses import dataclass
from typing import Final

from plimsoll.core.kv import EngineOptions, resolve
from plimsoll.core.memory.decoder import open_decoder
from plimsoll.core.memory.flags import MemoryFlags
from plimsoll.core.memory.mlps import Experts, read_mlps
from plimsoll.core.memory.towers import Tower, open_wrapper, read_tower
from plimsoll.core.memory.weights import element_bytes
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.models import ModelFacts

_HOPPER: Final = 9
# Parts that share memory with their host: what is free there is the host's affair.
_UNIFIED: Final = ("GB10", "GH200", "Thor", "Spark", "Jetson")
LARGEST_IMAGE_TOKENS: Final = 16384
"""What a model that takes images of any size is profiled with (Qwen-VL's largest image)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of ``tokens``, of which ``sampled`` get a next token; sizes are of the model or of one rank as named."""

    tokens: int
    sampled: int
    tensor_parallel: int
    world: int
    version: EngineVersion
    cuda: bool
    discrete: bool
    captured: int
    element_bytes: int
    hidden: int
    vocabulary: int
    layers: int
    rank_mlp_width: int
    experts: Experts | None
    rank_expert_width: int
    experts_per_token: int
    four_bit_experts: bool
    unfused_experts: bool
    tower: Tower | None
    image_patches: int


def read_step(facts: ModelFacts, options: EngineOptions, flags: MemoryFlags) -> Step:
    """The step that vLLM profiles at start.

    Raises:
        Refusal: the options contradict the model.
    """
    resolved = resolve(facts, options)
    mlps = read_mlps(open_decoder(facts))
    tower = None if options.text_only or flags.unprofiled_encoders else read_tower(open_wrapper(facts))
    tokens, experts = resolved.max_num_batched_tokens, mlps.experts
    expert_width = experts.intermediate if experts else 0
    has_dense = "sparse" not in mlps.kinds
    return Step(
        tokens=tokens,
        sampled=0 if flags.pooling else min(resolved.max_num_seqs, tokens),
        tensor_parallel=options.tensor_parallel,
        world=options.tensor_parallel * options.pipeline_parallel,
        version=options.version,
        cuda=options.device != "cpu" and options.device.vendor == "nvidia",
        discrete=options.device != "cpu" and not any(name in options.device.name for name in _UNIFIED),
        captured=captured_sizes(flags, resolved.max_num_seqs, options),
        element_bytes=element_bytes(facts, options.dtype),
        hidden=facts.dims.hidden_size,
        vocabulary=facts.dims.vocab_size,
        layers=facts.dims.layers,
        rank_mlp_width=-(-(max(mlps.widths, default=0) if has_dense else expert_width) // options.tensor_parallel),
        experts=experts,
        rank_expert_width=expert_width if flags.expert_parallel else -(-expert_width // options.tensor_parallel),
        experts_per_token=max(1, facts.dims.experts_per_token),
        four_bit_experts=_four_bit_experts(flags.quantization or facts.quantisation.method),
        unfused_experts=facts.quantisation.method == "gpt_oss_mxfp4" and options.capability[0] == _HOPPER,
        tower=tower,
        image_patches=_image_patches(tower, tokens),
    )


def captured_sizes(flags: MemoryFlags, max_num_seqs: int, options: EngineOptions) -> int:
    """How many batch sizes CUDA graphs are captured for; 0 in eager mode.

    1, 2 and 4, then steps of 8 to 256, then of 16 up to twice ``max_num_seqs`` (with speculation times its tokens), at
    most 512, or 1,024 on SM100. Source: vLLM 0.32 ``config/vllm.py _set_cudagraph_sizes``.
    """
    if flags.enforce_eager:
        return 0
    if flags.cudagraph_capture_sizes is not None:
        return len(flags.cudagraph_capture_sizes)
    ceiling = 1024 if options.capability[0] == 10 else 512  # noqa: PLR2004
    largest = flags.max_cudagraph_capture_size or min(2 * max_num_seqs * (1 + options.speculative_tokens), ceiling)
    fine, coarse = min(largest, 256), max(0, largest - 256)
    return sum(size <= largest for size in (1, 2, 4)) + fine // 8 + coarse // 16


def _four_bit_experts(method: str | None) -> bool:
    """Kernels of four-bit floating-point experts keep no workspace of their own in torch's pool."""
    return method in {"mxfp4", "gpt_oss_mxfp4", "modelopt_fp4"}


def _image_patches(tower: Tower | None, tokens: int) -> int:
    """Patches the encoder is profiled with: the larger of a step's and the largest image's tokens, before merging."""
    return 0 if tower is None else max(tokens, LARGEST_IMAGE_TOKENS) * tower.merge**2
