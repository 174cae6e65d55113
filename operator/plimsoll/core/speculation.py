"""``--speculative-config`` as the engine understands it: the method, and whose weights and cache the draft brings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from plimsoll.core.kv import Speculation
from plimsoll.facts import engine_flags
from plimsoll.facts.models import ModelFacts

MOST_TOKENS: Final = 1024
FindModel = Callable[[str], ModelFacts | None]

_WEIGHTLESS: Final = frozenset({"ngram", "ngram_gpu", "suffix"})
# Heads made for one target, of the size of about one of its layers.
_HEADS: Final = frozenset({"eagle", "eagle3", "dflash", "dspark", "medusa", "mlp_speculator"})


class SpeculationError(ValueError):
    """A configuration that cannot be used; the message names key, value and what is allowed."""


@dataclass(frozen=True)
class Drafting:
    """What was read. ``unknown`` names a draft whose configuration nobody has; ``notes`` say what is assumed."""

    speculation: Speculation | None = None
    unknown: str | None = None
    notes: tuple[str, ...] = ()


def read_speculation(written: Mapping[str, Any], find: FindModel) -> Drafting:
    """The speculation of a configuration object; nothing of an empty one.

    A head of which no configuration is known counts as one layer like the target's own, with both its vocabularies:
    more than published ones take. A draft model of which none is known cannot be bounded.

    Raises:
        SpeculationError: a key has a value that vLLM would not take.
    """
    if not written:
        return Drafting()
    tokens, model = _tokens(written.get("num_speculative_tokens", 1)), written.get("model")
    name = model if isinstance(model, str) and model else None
    method = _method(written.get("method"), name)
    if method == "mtp" or method in _WEIGHTLESS or name is None:
        return Drafting(Speculation(method, tokens))
    draft = find(name)
    if draft is not None:
        return Drafting(Speculation(method, tokens, draft))
    if method in _HEADS:
        note = f"speculation: nothing is known of {name}: it counts as one layer of the model with both vocabularies"
        return Drafting(Speculation(method, tokens, like_target=True), notes=(note,))
    return Drafting(Speculation(method, tokens), unknown=name)


def _tokens(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TOKENS:
        shown = str(value)[:40]
        raise SpeculationError(f"num_speculative_tokens: {shown!r} is not a number from 1 to {MOST_TOKENS}")
    return value


def _method(value: object, model: str | None) -> str:
    """The method; left out, as vLLM guesses it from the draft's name. Its predictors by family are all one method.

    Source: vLLM 0.32 ``config/speculative.py``.
    """
    if value is not None and not isinstance(value, str):
        raise SpeculationError(f"method: {str(value)[:40]!r} is not a word")
    if value:
        return "mtp" if value.endswith("_mtp") else value
    if model is None:
        return "mtp"
    folded = model.lower()
    return "eagle3" if "eagle3" in folded else "eagle" if "eagle" in folded else "draft_model"


def predictor_problem(speculation: Speculation | None, facts: ModelFacts) -> str | None:
    """Why a checkpoint cannot predict for itself: it declares no module, and no release has a class for its family.

    Files that circulate often leave the number of modules out, so that a known family is believed to have one.
    """
    if speculation is None or speculation.method != "mtp" or facts.draft_modules:
        return None
    if facts.draft_layers and any(facts.model_type.startswith(family) for family in _predictor_families()):
        return None
    return f"{facts.model_type or facts.architecture} has no predictor of its own (method mtp)"


@cache
def _predictor_families() -> tuple[str, ...]:
    """Model types by the names of their predictors among the parser's own choices (``deepseek_mtp``)."""
    flag = engine_flags.find("--spec-method")
    named = {value for _, values in flag.choices for value in values} if flag else set()
    return tuple(sorted(value.removesuffix("_mtp") for value in named if value.endswith("_mtp")))
