"""What a model stores and computes: typed facts read from its ``config.json``.

``read_model`` is the one way in. The types below are what every planner reads; how a family of checkpoints spells them
is the business of one file each in ``plimsoll.facts.families``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

JSONObject = Mapping[str, object]

# Bytes of one element; every name a checkpoint or a flag uses.
DTYPE_BYTES: Final[Mapping[str, int]] = {
    "float32": 4,
    "float": 4,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
}


_LONGEST_SHOWN: Final = 60


class ModelConfigError(ValueError):
    """A configuration that cannot be read: which field, what it holds, what is allowed."""

    def __init__(self, field_name: str, value: object, message: str) -> None:
        super().__init__(f"{field_name}: {_shown(value)}: {message}")
        self.field = field_name
        self.value = value


def _shown(value: object) -> str:
    """A value as an error shows it; it may be as large or as deep as its writer liked."""
    match value:
        case Mapping():
            return f"an object of {len(value)} keys"
        case list() | tuple():
            return f"a list of {len(value)}"
        case str():
            return repr(value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "…")
        case int() if value.bit_length() > _LONGEST_SHOWN:
            return f"a number of {value.bit_length()} bits"
        case _:
            return repr(value)[:_LONGEST_SHOWN]


class UnknownArchitecture(ValueError):  # noqa: N818 # a fact about the model, named as the contract's reason is
    """A model whose caches nobody described; ``missing`` says what would be needed to plan it."""

    def __init__(self, architecture: str, missing: str) -> None:
        super().__init__(f"architecture {architecture!r} is not known: {missing}")
        self.architecture = architecture
        self.missing = missing


@dataclass(frozen=True, slots=True)
class SoftmaxAttention:
    """Attention that stores K and V for each KV head (MHA, GQA, MQA).

    ``window_tokens`` makes it sliding, ``chunk_tokens`` chunked-local. ``sinks`` excludes some kernels, ``kernel``
    names the one its class insists on.
    """

    query_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window_tokens: int | None = None
    chunk_tokens: int | None = None
    sinks: bool = False
    kernel: str | None = None


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Attention that stores one compressed vector a token for all heads (MLA), replicated on every rank.

    ``sparse``: reads only the tokens an indexer picks. ``row_dim``: elements its class stores a token where that is
    more than latent and rope together. ``window_tokens``: keeps only the last ones.
    """

    query_heads: int
    latent_dim: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    sparse: bool = False
    window_tokens: int | None = None
    row_dim: int | None = None
    kernel: str | None = None


@dataclass(frozen=True, slots=True)
class IndexerKeys:
    """Keys of a sparse-attention indexer: one small vector for a token or a pooled group, replicated on every rank."""

    key_bytes: int
    tokens_per_key: int = 1
    kernel: str = "DEEPSEEK_V32_INDEXER"


@dataclass(frozen=True, slots=True)
class RingBuffer:
    """Raw keys of the group of tokens that is still being pooled: one block a request, written round and round.

    The ring holds whole groups, enough for one group and a step's drafts; ``power_of_two`` rounds their number up.
    """

    group_tokens: int
    token_bytes: int
    power_of_two: bool = False


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """A layer of DeepSeek V4 or V4.1: a sliding window of latents and, for ``ratio`` > 0, pooled ones of all tokens.

    ``ratio`` tokens share one pooled latent (0: window only). ``owns_keys`` is false where V4.1 reads the pooled
    latents of an earlier layer. ``indexer_dim`` is set where the layer picks among pooled latents.
    """

    generation: Literal["v4", "v41"]
    head_dim: int
    window_tokens: int
    ratio: int
    owns_keys: bool
    indexer_dim: int | None = None


@dataclass(frozen=True, slots=True)
class ConvolutionWindow:
    """Inputs of short convolutions kept as a sliding window of ``kernel_tokens``; heads are spread over ranks."""

    heads: int
    head_elements: int
    kernel_tokens: int


@dataclass(frozen=True, slots=True)
class CrossAttention:
    """Decoder attention over a fixed number of encoder positions."""

    query_heads: int
    kv_heads: int
    head_dim: int
    encoder_tokens: int


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One tensor of a layer's recurrent state, per request.

    Elements on a rank are ``rows / tensor_parallel × columns``; ``grouped_rows`` are rows of B and C groups, which are
    replicated where there are fewer groups than ranks. Speculation adds its tokens to a convolution's columns
    (``grows``). ``role`` decides the dtype; ``replicated`` keeps every row on every rank.
    """

    role: Literal["conv", "ssm"]
    rows: int
    columns: int
    grows: bool = False
    grouped_rows: int = 0
    replicated: bool = False


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """A layer whose memory does not grow with context: Mamba, gated delta net, KDA, short convolution.

    ``groups`` divide over ranks or are replicated; ``key_dim`` and ``bounded_gate`` decide which kernel prefills it.
    """

    kind: Literal["gdn", "mamba1", "mamba2", "kda", "short_conv", "linear", "embedding_conv"]
    tensors: tuple[StateTensor, ...]
    groups: int = 1
    key_dim: int = 0
    bounded_gate: bool = False


Cache = (
    SoftmaxAttention
    | LatentAttention
    | IndexerKeys
    | RingBuffer
    | CompressedAttention
    | ConvolutionWindow
    | CrossAttention
    | RecurrentState
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer: what it stores (nothing for an MLP, or for a layer that shares an earlier one's cache)."""

    caches: tuple[Cache, ...] = ()
    shares_cache_of: int | None = None


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How weights, and the cache when left to the checkpoint, are stored.

    ``method`` is vLLM's name after it resolved the checkpoint's spelling (None: not quantised). ``kv_cache_dtype`` is
    what ``--kv-cache-dtype auto`` becomes (None: the model's own dtype). ``config`` is the checkpoint's own text.
    """

    method: str | None = None
    kv_cache_dtype: str | None = None
    config: JSONObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of the decoder that weights and activations depend on; 0 where a model has none."""

    hidden_size: int
    intermediate_size: int
    vocab_size: int
    layers: int
    query_heads: int
    kv_heads: int
    head_dim: int
    experts: int
    experts_per_token: int
    expert_intermediate_size: int
    tie_word_embeddings: bool


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """Everything the planner knows about one checkpoint; equal only to itself, so that results can be remembered by it.

    ``layers`` are the decoder's, in order; ``draft_layers`` those its multi-token predictor would add,
    ``draft_modules`` how many modules of it the file declares. ``limit_is_assumed``: ``max_model_len`` is a default
    that refuses nothing, because the file leaves out what every published one writes. ``head_size`` is the figure
    vLLM keeps for the whole model (the compressed vector under MLA): it sizes hybrid blocks with it even where layers
    differ. ``raw`` is the decoder's part as written, ``config`` the whole file; ``assumed`` names absent keys that got
    their default.
    """

    architecture: str
    model_type: str
    family: str
    dims: Dimensions
    layers: tuple[Layer, ...]
    head_size: int
    dtype: str
    max_model_len: int
    limit_is_assumed: bool = False
    quantisation: Quantisation = field(default_factory=Quantisation)
    draft_layers: tuple[Layer, ...] = ()
    draft_modules: int = 0
    state_dtype: str | None = None
    multimodal: bool = False
    prefix_lm: bool = False
    original_max_positions: int | None = None
    weights_bytes: int | None = None
    assumed: tuple[str, ...] = ()
    raw: JSONObject = field(default_factory=dict, repr=False)
    config: JSONObject = field(default_factory=dict, repr=False)

    @cached_property
    def caches(self) -> tuple[Cache, ...]:
        """Every cache of the target model, in layer order."""
        return tuple(cache for layer in self.layers for cache in layer.caches)

    @cached_property
    def uses_latent_attention(self) -> bool:
        """Whether vLLM treats the model as MLA."""
        return any(isinstance(cache, LatentAttention | CompressedAttention) for cache in self.caches)

    @cached_property
    def has_state(self) -> bool:
        """Whether any layer keeps recurrent state."""
        return any(isinstance(cache, RecurrentState) for cache in self.caches)

    @cached_property
    def states_are_mamba(self) -> bool:
        """Whether every recurrent state is one of Mamba's."""
        return all(cache.kind in {"mamba1", "mamba2"} for cache in self.caches if isinstance(cache, RecurrentState))

    @cached_property
    def has_attention(self) -> bool:
        """Whether any layer keeps keys of past tokens."""
        return any(not isinstance(cache, RecurrentState) for cache in self.caches)

    @cached_property
    def has_chunks(self) -> bool:
        """Whether any layer attends within chunks only."""
        return any(isinstance(cache, SoftmaxAttention) and cache.chunk_tokens for cache in self.caches)

    @cached_property
    def window_tokens(self) -> int | None:
        """The sliding window of its softmax layers; None where none slides."""
        windows = (cache.window_tokens for cache in self.caches if isinstance(cache, SoftmaxAttention))
        return next((window for window in windows if window), None)

    @cached_property
    def has_encoder(self) -> bool:
        """Whether a decoder layer attends over encoder positions."""
        return any(isinstance(cache, CrossAttention) for cache in self.caches)


def read_model(
    config: JSONObject, quant_config: JSONObject | None = None, *, weights_bytes: int | None = None
) -> ModelFacts:
    """Facts of the model that ``config.json`` describes.

    Args:
        config: the file's object.
        quant_config: the ``hf_quant_config.json`` beside it, used like vLLM does: only when ``config`` has no
            ``quantization_config``.
        weights_bytes: total of the safetensors index, when known.

    Raises:
        ModelConfigError: a field is missing, of the wrong type, or outside any model's range.
        UnknownArchitecture: nobody described the caches of this architecture.
    """
    from plimsoll.facts.families import read  # noqa: PLC0415 # families build on these types

    return read(config, quant_config, weights_bytes)
