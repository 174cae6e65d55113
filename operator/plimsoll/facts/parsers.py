"""Names of the parsers that turn a model's text into reasoning and tool calls, by family and release.

Families and names are those of vLLM's public recipes; ``since`` is the first recorded release (0.x) from which the name
is safe to use: an unknown one is refused at start, a missing one only leaves the text as it is.
"""

from dataclasses import dataclass
from typing import Final

from plimsoll.facts.engines import EngineVersion


@dataclass(frozen=True, slots=True)
class Parsers:
    """``--reasoning-parser`` and ``--tool-call-parser``; None where the family has none."""

    reasoning: str | None = None
    tools: str | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    """Model types by their beginning; ``named``: only for models whose name holds one of these."""

    types: tuple[str, ...]
    reasoning: tuple[str, int] | None = None
    tools: tuple[str, int] | None = None
    named: tuple[str, ...] = ()


# The first row whose longest type fits wins. (Name of the parser, first minor release.)
_ROWS: Final = (
    _Row(("qwen3_5", "qwen3_6", "qwen3_8"), ("qwen3", 10), ("qwen3_coder", 12)),
    _Row(("qwen3_vl", "qwen3_vl_moe", "qwen3_next"), None, ("hermes", 10)),
    _Row(("qwen3", "qwen3_moe"), None, ("qwen3_coder", 12), named=("coder",)),
    _Row(("qwen3", "qwen3_moe"), ("qwen3", 10), ("hermes", 10)),
    _Row(("qwen2",), None, ("hermes", 10)),
    _Row(("gpt_oss",), None, ("openai", 12)),
    _Row(("gemma4",), ("gemma4", 22), ("gemma4", 22)),
    _Row(("glm4_moe",), ("glm45", 10), ("glm45", 10), named=("4.5", "4.6")),
    _Row(("minimax_m2",), ("minimax_m2", 12), ("minimax_m2", 12)),
    _Row(("kimi_k2",), None, ("kimi_k2", 10)),
    _Row(("seed_oss",), ("seed_oss", 11), ("seed_oss", 11)),
    _Row(("olmo3",), ("olmo3", 14), ("olmo3", 14)),
)
# Variants that answer without thinking: a reasoning parser would take their whole answer for thought.
_PLAIN: Final = ("instruct", "coder")
_NOT_GENERATING: Final = ("Embedding", "Classification", "Reward")


def parsers_of(model_type: str, model_id: str, architecture: str, version: EngineVersion) -> Parsers:
    """Parsers of a family in a release; both None for a family the recipes say nothing about."""
    name = model_id.rsplit("/", 1)[-1].lower()
    if any(word in architecture or word.lower() in name for word in _NOT_GENERATING):
        return Parsers()
    row = _row(model_type.removesuffix("_text"), name)
    if row is None:
        return Parsers()
    thinks = not any(word in name for word in _PLAIN)
    return Parsers(_known(row.reasoning, version) if thinks else None, _known(row.tools, version))


def _row(model_type: str, name: str) -> _Row | None:
    fits = [
        (len(prefix), row)
        for row in _ROWS
        for prefix in row.types
        if (model_type == prefix or model_type.startswith(f"{prefix}_"))
        and (not row.named or any(word in name for word in row.named))
    ]
    return max(fits, key=lambda pair: pair[0])[1] if fits else None


def _known(parser: tuple[str, int] | None, version: EngineVersion) -> str | None:
    return parser[0] if parser and version.at_least(parser[1]) else None
