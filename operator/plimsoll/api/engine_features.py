"""Features of the engine that cost memory and stay off unless asked for: adapters, speculation, a second KV tier."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from plimsoll.api.model import APIModel, Rule
from plimsoll.api.units import ByteQuantity

MOST_DRAFT_TOKENS = 32
_OWN_DRAFT = ("Eagle", "Eagle3", "DraftModel")
_REPOSITORY_OR_PATH = r"^([A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?|(/[A-Za-z0-9._@:+-]+)+/?)$"
Checkpoint = Annotated[str, Field(pattern=_REPOSITORY_OR_PATH, max_length=256)]


class LoRAModule(APIModel):
    """One adapter that is served from the start, under a name of its own."""

    name: str = Field(
        description="The model name that requests ask for.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=63,
        examples=["sql"],
    )
    path: Checkpoint = Field(
        description="A Hugging Face repository, or an absolute path inside the engine's container.",
        examples=["acme/llama-sql-lora", "/adapters/sql"],
    )


def _names_once(modules: tuple[LoRAModule, ...]) -> tuple[LoRAModule, ...]:
    if len({module.name for module in modules}) < len(modules):
        raise PydanticCustomError("duplicates", "must not name anything twice")
    return modules


class LoRASpec(APIModel):
    """LoRA adapters. Their slots take GPU memory from the KV cache, whether used or not."""

    max_loras: int = Field(
        default=1, description="Adapters that one batch may use; each is a slot in GPU memory.", ge=1, le=64
    )
    max_rank: Literal[8, 16, 32, 64, 128, 256, 320, 512] = Field(
        default=16, description="The largest rank of any adapter; slots are of this size."
    )
    modules: Annotated[tuple[LoRAModule, ...], AfterValidator(_names_once)] = Field(
        default=(),
        description="Adapters to load at start. Left out: none, or by the engine's own API.",
        max_length=16,
        strict=False,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class SpeculativeSpec(APIModel):
    """Speculative decoding: a draft proposes tokens, the model verifies them. Its weights and KV cache are planned."""

    rules: ClassVar = (
        Rule(
            cel="has(self.model) == (self.method in ['Eagle', 'Eagle3', 'DraftModel'])",
            message="model names the draft of Eagle, Eagle3 and DraftModel; MTP and NGram have none",
            holds=lambda spec: (spec.model is not None) == (spec.method in _OWN_DRAFT),
            field="model",
        ),
        Rule(
            cel="!has(self.acceptedTokensPerStep) || self.acceptedTokensPerStep <= double(self.tokens) + 1.0",
            message="acceptedTokensPerStep must not exceed tokens + 1",
            holds=lambda spec: (
                spec.accepted_tokens_per_step is None or spec.accepted_tokens_per_step <= spec.tokens + 1
            ),
            field="acceptedTokensPerStep",
        ),
    )

    method: Literal["MTP", "Eagle", "Eagle3", "DraftModel", "NGram"] = Field(
        description=(
            "Who drafts. MTP: the checkpoint's own predictor. Eagle, Eagle3: a head made for the model. DraftModel: a "
            "small model with the same vocabulary. NGram: the prompt itself. Others: engine.extraArgs."
        )
    )
    model: Checkpoint | None = Field(
        default=None,
        description="The draft: a Hugging Face repository, or an absolute path inside the engine's container.",
        examples=["Qwen/Qwen3-0.6B"],
    )
    tokens: int = Field(description="Tokens drafted a step.", ge=1, le=MOST_DRAFT_TOKENS, examples=[3])
    accepted_tokens_per_step: float | None = Field(
        default=None,
        description=(
            "Tokens a step yields on average, the certain one included, as measured. Left out: 1, so that no latency "
            "is promised that depends on lucky drafts."
        ),
        ge=1,
        le=MOST_DRAFT_TOKENS + 1,
        examples=[2.4],
    )


class KVOffloadSpec(APIModel):
    """A second tier of the KV cache in host memory, for prefixes that return. It holds no running request."""

    host_memory: ByteQuantity = Field(
        description="Host memory of one replica for it; pods request it beside what they need anyway.",
        examples=["64Gi"],
    )
