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
    types: tuple[str, ...]
    reasoning: tuple[str, int] | None = None
    tools: tuple[str, int] | None = None


# Model types by their beginning, the longest that fits wins. (name, first minor release).
_ROWS: Final = (
    _Row(("qwen3_5", "qwen3_6", "qwen3_8"), ("qwen3", 10), ("qwen3_coder", 12)),
    _Row(("qwen3_vl", "qwen3_vl_moe"), None, ("hermes", 10)),
    _Row(("qwen3", "qwen3_moe"), ("qwen3", 10), ("hermes", 10)),
    _Row(("qwen3_next",), None, ("hermes", 10)),
    _Row(("qwen2",), None, ("hermes", 10)),
    _Row(("gpt_oss",), None, ("openai", 12)),
    _Row(("gemma4",), ("gemma4", 22), ("gemma4", 22)),
    _Row(("deepseek_v32",), ("deepseek_v3", 16), ("deepseek_v32", 16)),
    _Row(("glm4_moe",), ("glm45", 10), ("glm45", 10)),
    _Row(("minimax_m2",), ("minimax_m2", 12), ("minimax_m2", 12)),
    _Row(("kimi_k2",), None, ("kimi_k2", 10)),
    _Row(("llama4",), None, ("llama4_pythonic", 10)),
    _Row(("seed_oss",), ("seed_oss", 11), ("seed_oss", 11)),
    _Row(("olmo3",), ("olmo3", 14), ("olmo3", 14)),
)


def parsers_of(model_type: str, architecture: str, version: EngineVersion) -> Parsers:
    """Parsers of a family in a release; both None for a family the recipes say nothing about."""
    if "Embedding" in architecture or "Classification" in architecture or "Reward" in architecture:
        return Parsers()
    folded = model_type.removesuffix("_text")
    fits = [(len(name), row) for row in _ROWS for name in row.types if folded == name or folded.startswith(f"{name}_")]
    if not fits:
        return Parsers()
    row = max(fits, key=lambda pair: pair[0])[1]
    return Parsers(_known(row.reasoning, version), _known(row.tools, version))


def _known(parser: tuple[str, int] | None, version: EngineVersion) -> str | None:
    return parser[0] if parser and version.at_least(parser[1]) else None
