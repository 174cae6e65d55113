"""What an engine is started with, as far as its KV cache depends on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from plimsoll.core.kv.rules import CacheRules, rules_of
from plimsoll.facts.engines import NEWEST, EngineVersion
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelFacts

Device = GPU | Literal["cpu"]

# Generations of CUDA parts that kernels tell apart, by major compute capability.
HOPPER: Final = 9
BLACKWELL: Final = 10
BLACKWELL_WORKSTATION: Final = 12

# Methods whose draft reads hidden states of the target (vLLM's ``use_eagle``).
_EAGLE_LIKE: Final = frozenset({"eagle", "eagle3", "mtp", "dflash", "dspark"})


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: the method, tokens a step, and the draft model where it is one of its own.

    ``like_target``: of the draft is known only that it is a head, taken for one of the target's own layers.
    """

    method: str
    tokens: int
    draft: ModelFacts | None = None
    like_target: bool = False

    @property
    def eagle_like(self) -> bool:
        """Whether the draft reads the target's hidden states, one token ahead of it."""
        return self.method in _EAGLE_LIKE

    @property
    def schedules_ahead(self) -> bool:
        """Whether steps may overlap under this method (vLLM 0.32 ``config/vllm.py``)."""
        return self.eagle_like or self.method in {"ngram_gpu", "draft_model"}


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Flags of ``vllm serve`` that shape the cache; None leaves the choice to vLLM.

    ``device`` is a GPU or ``"cpu"``. Sizes are of one engine (data-parallel rank). ``offline`` is the ``LLM`` class.
    """

    device: Device
    version: EngineVersion = field(default_factory=lambda: EngineVersion.parse(NEWEST))
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    decode_context_parallel: int = 1
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    kv_cache_dtype_skip_layers: tuple[str, ...] = ()
    block_size: int | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    async_scheduling: bool | None = None
    disable_hybrid_manager: bool | None = None
    disable_sliding_window: bool = False
    gdn_prefill_backend: str = "auto"
    kda_prefill_backend: str = "auto"
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mamba_block_size: int | None = None
    attention_backend: str | None = None
    layer_partition: tuple[int, ...] | None = None
    num_blocks_override: int | None = None
    text_only: bool = False
    allow_long_max_model_len: bool = False
    offline: bool = False
    speculation: Speculation | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        """Whether this is a CPU build."""
        return self.device == "cpu"

    @property
    def generation(self) -> int:
        """Major compute capability: 7 Turing, 8 Ampere and Ada, 9 Hopper, 10 and 12 Blackwell; 0 elsewhere."""
        return self.capability[0]

    @property
    def on_rocm(self) -> bool:
        """Whether this is an AMD part."""
        return self.device != "cpu" and self.device.vendor == "amd"

    @property
    def capability(self) -> tuple[int, int]:
        """CUDA compute capability; (0, 0) on a CPU or a GPU of another vendor."""
        device = self.device
        return (0, 0) if device == "cpu" or device.capability is None else device.capability

    @property
    def rules(self) -> CacheRules:
        """What this release does differently from others."""
        return rules_of(self.version)

    @property
    def speculative_tokens(self) -> int:
        """Draft tokens a step."""
        return self.speculation.tokens if self.speculation else 0
