"""One configuration opened for reading: which part is the decoder's, and the figures every family needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from plimsoll.facts.fields import MAX_LAYERS, MAX_TOKENS, Fields, default_text_type
from plimsoll.facts.models import JSONObject, ModelConfigError

# Where wrappers keep their decoder, in the order vLLM looks.
_TEXT_PARTS: Final = ("thinker_config", "text_config", "llm_config", "language_config", "language_model_config")
_KV_HEAD_KEYS: Final = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
# Published Mistral files write their window, null in all but the first; their class would fill in 4,096 tokens. A file
# without the key was shortened by somebody, and start-up logs of such models show full attention.
_WINDOW_ALWAYS_WRITTEN: Final = frozenset({"ministral", "mistral"})
_EXPERT_KEYS: Final = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_EXPERTS_PER_TOKEN_KEYS: Final = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
)


@dataclass(frozen=True)
class Reading:
    """The file (``top``) and its decoder's part (``text``; the same object when there is no wrapper)."""

    architecture: str
    top: Fields
    text: Fields

    @property
    def wrapped(self) -> bool:
        """Whether the decoder sits inside a multimodal wrapper."""
        return self.text.values is not self.top.values

    @cached_property
    def layer_count(self) -> int:
        """Decoder layers."""
        return self.text.integer("num_hidden_layers", "n_layers", "num_layers", "n_layer", maximum=MAX_LAYERS)

    @cached_property
    def query_heads(self) -> int:
        """Attention heads of the whole model."""
        return self.text.integer("num_attention_heads", "n_head", "n_heads", "num_heads")

    @cached_property
    def kv_heads(self) -> int:
        """KV heads of the whole model: the first spelling present, else as many as query heads.

        Source: vLLM 0.32 ``model_arch_config_convertor.py get_total_num_kv_heads``.
        """
        return self.text.optional_int(*_KV_HEAD_KEYS, minimum=1) or self.query_heads

    @cached_property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return self.text.integer("hidden_size", "n_embd", "d_model")

    @cached_property
    def head_dim(self) -> int:
        """Size of a head: as written, else hidden size over heads."""
        written = self.text.optional_int("head_dim", "hidden_size_per_head", "kv_channels")
        return written or self.quotient_head_dim

    @cached_property
    def quotient_head_dim(self) -> int:
        """Hidden size over heads."""
        if self.hidden_size < self.query_heads:
            name = self.text.name("hidden_size")
            raise ModelConfigError(name, self.hidden_size, f"less than the {self.query_heads} attention heads")
        return self.hidden_size // self.query_heads

    @cached_property
    def window_tokens(self) -> int | None:
        """Sliding window; None when there is none, when it is 0, or when ``use_sliding_window`` is false."""
        if self.text.get("use_sliding_window") is False:
            return None
        if self.text.model_type in _WINDOW_ALWAYS_WRITTEN and not self.text.has("sliding_window"):
            return None
        return self.text.optional_int("sliding_window", maximum=MAX_TOKENS) or None

    def layer_types(self) -> tuple[str, ...] | None:
        """``layer_types`` as written, one a layer."""
        return self.text.strings("layer_types", length=self.layer_count)

    def experts(self) -> int:
        """Routed experts of a layer; 0 in a dense model."""
        for key in _EXPERT_KEYS:
            if isinstance(self.text.values.get(key), list):
                return max(self.text.integers(key) or (0,))
        return self.text.optional_int(*_EXPERT_KEYS) or 0

    def experts_per_token(self) -> int:
        """Routed experts a token visits."""
        for key in _EXPERTS_PER_TOKEN_KEYS:
            if isinstance(self.text.values.get(key), list):
                return max(self.text.integers(key) or (0,))
        return self.text.optional_int(*_EXPERTS_PER_TOKEN_KEYS) or 0


def decoder_part(top: Fields) -> Fields:
    """The object that describes the decoder: the innermost known part, or the file itself."""
    part = top
    for _ in range(len(_TEXT_PARTS)):
        key = next((key for key in _TEXT_PARTS if isinstance(part.values.get(key), Mapping)), None)
        if key is None:
            return part
        inner = part.values[key]
        assert isinstance(inner, Mapping)  # noqa: S101 # the generator above looked
        written = inner.get("model_type")
        known = written if isinstance(written, str) else default_text_type(part.model_type) or ""
        part = Fields(inner, part.name(key), known)
    return part


def as_object(value: object, name: str) -> JSONObject:
    """The value if it is a JSON object.

    Raises:
        ModelConfigError: it is not.
    """
    if not isinstance(value, Mapping):
        raise ModelConfigError(name, value, "not an object")
    return value
