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


class ModelConfigError(ValueError):
    """A configuration that cannot be read: which field, what it holds, what is allowed."""

    def __init__(self, field_name: str, value: object, message: str) -> None:
        shown = repr(value)
        super().__init__(f"{field_name}: {shown if len(shown) <= 60 else shown[:57] + '…'}: {message}")
        self.field = field_name
        self.value = value


class UnknownArchitecture(ValueError):  # noqa: N818 # a fact about the model, named as the contract's reason is
    """A model whose caches nobody described; ``missing`` says what would be needed to plan it."""

    def __init__(self, architecture: str, missing: str) -> None:
        super().__init__(f"architecture {architecture!r} is not known: {missing}")
        self.architecture = architecture
        self.missing = missing


@dataclass(frozen=True, slots=True)
class SoftmaxAttention:
    """Attention that stores K and V for each KV head (MHA, GQA, MQA).

    ``window_tokens`` makes it sliding, ``chunk_tokens`` chunked-local. ``sinks``, ``alibi`` and ``splits_kv_widths``
    restrict the kernels that can run it.
    """

    query_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window_tokens: int | None = None
    chunk_tokens: int | None = None
    sinks: bool = False
    alibi: bool = False
    splits_kv_widths: bool = False
    kernel: str | None = None


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Attention that stores one compressed vector a token for all heads (MLA), replicated on every rank.

    ``sparse``: reads only the tokens an indexer picks. ``window_tokens``: keeps only the last ones.
    """

    query_heads: int
    latent_dim: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    sparse: bool = False
    window_tokens: int | None = None
    head_page_dim: int | None = None


@dataclass(frozen=True, slots=True)
class IndexerKeys:
    """Keys of a sparse-attention indexer: one small vector a token (or a pooled group of tokens), replicated.

    ``quantised`` keeps them in fp8 with one scale of four bytes for every 128 elements.
    """

    key_dim: int
    quantised: bool = True
    tokens_per_key: int = 1


@dataclass(frozen=True, slots=True)
class CrossAttention:
    """Decoder attention over a fixed number of encoder positions."""

    query_heads: int
    kv_heads: int
    head_dim: int
    encoder_tokens: int


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One recurrent-state tensor of a layer, per request.

    Elements on a rank = ``sharded_rows / tensor_parallel × columns``; a convolution's ``columns`` grow by one for every
    speculative token (``grows_with_speculation``). ``role`` decides the dtype: ``conv`` or ``ssm``.
    """

    role: Literal["conv", "ssm"]
    sharded_rows: int
    columns: int
    grows_with_speculation: bool = False


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """A layer whose memory does not grow with context: Mamba, gated delta net, KDA, short convolution."""

    kind: Literal["gdn", "mamba1", "mamba2", "kda", "short_conv", "linear"]
    tensors: tuple[StateTensor, ...]
    heads: int
    groups: int = 1
    head_key_dim: int = 0


@dataclass(frozen=True, slots=True)
class RawCache:
    """A cache whose page is fixed by the engine's own code rather than by head counts (DeepSeek V4, Inkling…).

    ``block_tokens`` tokens take ``block_bytes`` on a rank, or ``sharded_block_bytes`` divided by the tensor-parallel
    size. ``follows_block`` scales both with the engine's block size. ``window_tokens`` makes it sliding,
    ``ring`` keeps one block a request.
    """

    label: str
    block_tokens: int
    block_bytes: int
    window_tokens: int | None = None
    ring: bool = False


Cache = SoftmaxAttention | LatentAttention | IndexerKeys | CrossAttention | RecurrentState | RawCache


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


@dataclass(frozen=True)
class ModelFacts:
    """Everything the planner knows about one checkpoint.

    ``layers`` are the decoder's, in order; ``draft_layers`` those of its own multi-token predictor. ``attention_heads``,
    ``kv_heads`` and ``head_size`` are the figures vLLM keeps for the whole model (head size of the compressed vector
    under MLA): it sizes hybrid blocks with them even where layers differ. ``raw`` is the text configuration as
    written, ``config`` the whole file; ``assumed`` names keys that were absent and got their documented default.
    """

    architecture: str
    model_type: str
    family: str
    dims: Dimensions
    layers: tuple[Layer, ...]
    head_size: int
    dtype: str
    max_model_len: int
    quantisation: Quantisation = field(default_factory=Quantisation)
    draft_layers: tuple[Layer, ...] = ()
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

    @property
    def uses_latent_attention(self) -> bool:
        """Whether vLLM treats the model as MLA."""
        return any(isinstance(cache, LatentAttention) for cache in self.caches)

    @property
    def has_state(self) -> bool:
        """Whether any layer keeps recurrent state."""
        return any(isinstance(cache, RecurrentState) for cache in self.caches)

    @property
    def has_attention(self) -> bool:
        """Whether any layer keeps keys of every token."""
        return any(not isinstance(cache, RecurrentState) for cache in self.caches)


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
