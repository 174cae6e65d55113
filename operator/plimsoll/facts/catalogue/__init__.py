"""Configurations of public models that ship with the operator, one JSON file a model, read when asked for."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

_TEXT_ONLY: Final = "(text)"
_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A bundled model: its ``config.json``, the quantisation file beside it, and where they come from."""

    model_id: str
    config: Mapping[str, object]
    quant_config: Mapping[str, object] | None
    source: str


def find(model_id: str) -> CatalogueEntry | None:
    """The bundled model of that ``org/name``, in any letter case; None when it is not bundled."""
    name = _by_folded_name().get(model_id.strip().lower())
    return None if name is None else _read(name)


@lru_cache(maxsize=32)
def _read(name: str) -> CatalogueEntry:
    """Asked for at every look at a service; a fleet has few models."""
    text = (_HERE / f"{name.replace('/', '--', 1)}.json").read_text(encoding="utf-8")
    entry = json.loads(text)
    return CatalogueEntry(name, entry["config"], entry.get("quant_config"), entry["source"])


def nearest(model_id: str) -> tuple[str, ...]:
    """Up to three bundled names that read most like ``model_id``, for an error message."""
    folded = _by_folded_name()
    close = difflib.get_close_matches(model_id.strip().lower(), folded, n=3, cutoff=0.5)
    return tuple(dict.fromkeys(folded[name] for name in close))


def named(name: str) -> str | None:
    """The bundled ``org/name`` of a name without its organisation; None when none, or several, are called so."""
    found = _by_tail().get(name.strip().lower(), ())
    return found[0] if len(found) == 1 else None


@cache
def _by_tail() -> Mapping[str, tuple[str, ...]]:
    tails: dict[str, tuple[str, ...]] = {}
    for name in names():
        tail = name.partition("/")[2].lower().removesuffix(_TEXT_ONLY)
        if not name.endswith(_TEXT_ONLY):
            tails[tail] = (*tails.get(tail, ()), name)
    return tails


@cache
def names() -> tuple[str, ...]:
    """Every bundled ``org/name``, sorted."""
    files = (path.name for path in _HERE.iterdir())
    return tuple(sorted(name.removesuffix(".json").replace("--", "/", 1) for name in files if name.endswith(".json")))


@cache
def _by_folded_name() -> Mapping[str, str]:
    """Names in lower case; the text decoder stands in for a model that is bundled in no other form."""
    folded = {name.lower().removesuffix(_TEXT_ONLY): name for name in names() if name.endswith(_TEXT_ONLY)}
    return folded | {name.lower(): name for name in names()}
