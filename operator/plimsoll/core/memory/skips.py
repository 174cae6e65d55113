"""Which modules a quantised checkpoint leaves alone, in all the ways checkpoints write it.

Names come as plain module names or subtrees, as ``re:`` patterns (compressed-tensors) or with ``*`` (ModelOpt), each
with the prefix its author's wrapper happened to have. We compare below the decoder: everything before ``layers.`` is
dropped from plain names and globs, and regular expressions are tried with the usual prefixes.
"""

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Self

# Ways to name the part that sees or hears; ours is ``vision``.
_TOWERS: Final = re.compile(r"vision|visual|\bvit\b|mm_projector|multi_modal_projector|audio|patch_merge")
_DIGITS: Final = re.compile(r"\d")
_PREFIXES: Final = ("model.", "", "model.language_model.", "language_model.model.", "backbone.")
# Blocks that families name differently in checkpoint and engine.
_SYNONYMS: Final = (
    (".block_sparse_moe.", ".mlp."),
    (".feed_forward.", ".mlp."),
    (".ffn.", ".mlp."),
    (".attn.", ".self_attn."),
    (".shared_expert.", ".shared_experts."),
)


@dataclass(frozen=True)
class Skips:
    """A set of module names: exact names and subtrees, fragments, and patterns."""

    names: frozenset[str] = frozenset()
    fragments: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()
    globs: tuple[re.Pattern[str], ...] = ()
    _seen: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, written: Iterable[str]) -> Self:
        """Sort entries by how they are written."""
        names: set[str] = set()
        fragments: list[str] = []
        patterns: list[re.Pattern[str]] = []
        globs: list[re.Pattern[str]] = []
        for entry in written:
            if entry.startswith("re:"):
                patterns.append(re.compile(entry[3:]))
            if _TOWERS.search(entry) and not _names_one_module(entry):
                fragments.append("vision")
            elif entry.startswith("re:"):
                continue
            elif "*" in entry:
                globs.append(re.compile(fnmatch.translate(canonical(entry))))
            elif "layers." in entry:
                names.add(canonical(entry))
            else:
                fragments.append(canonical(entry))
        return cls(frozenset(names), tuple(fragments), tuple(patterns), tuple(globs))

    @property
    def tell_layers_apart(self) -> bool:
        """Whether any entry is about some layers only."""
        return bool(self.names) or any(_DIGITS.search(each.pattern) for each in (*self.patterns, *self.globs))

    def covers(self, path: str) -> bool:
        """Whether the module ``path`` (canonical, below the decoder) or a parent of it is named."""
        found = self._seen.get(path)
        if found is None:
            found = self._seen[path] = self._covers(path)
        return found

    def _covers(self, path: str) -> bool:
        parents = _parents(path)
        if any(parent in self.names for parent in parents):
            return True
        dotted = f".{path}."
        if any(f".{fragment}." in dotted for fragment in self.fragments):
            return True
        if any(pattern.match(parent) for pattern in self.globs for parent in parents):
            return True
        return any(pattern.match(prefix + path) for pattern in self.patterns for prefix in _PREFIXES)


def _names_one_module(entry: str) -> bool:
    """A full path from the checkpoint's root: vLLM compares it with its own, which differs for towers."""
    return entry.startswith("model.") and "*" not in entry


def canonical(name: str) -> str:
    """A module's name below the decoder, in our spelling."""
    start = name.find("layers.")
    if start > 0:
        name = name[start:] if "vision" not in name[:start] and "visual" not in name[:start] else f"vision.{name}"
    dotted = f".{name}."
    for theirs, ours in _SYNONYMS:
        dotted = dotted.replace(theirs, ours)
    return dotted[1:-1]


def _parents(path: str) -> tuple[str, ...]:
    parts = path.split(".")
    return tuple(".".join(parts[:length]) for length in range(len(parts), 0, -1))
