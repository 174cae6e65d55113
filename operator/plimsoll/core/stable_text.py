"""Texts of others, without credentials, and without what changes from second to second: a message that moves is a
write that says nothing.
"""

import re
from typing import Final

from plimsoll.core.redaction import redacted

_CHANGES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "0x…"),
    (re.compile(r"\b(?:[Pp]rocess|pid[= ]) ?\d+"), "process …"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*"), "…"),
    (re.compile(r"\(?[Rr]equest ID: [^)\s]+\)?"), ""),
    (re.compile(r'\b[Pp]ods? "[^"]+"'), "the pods"),
    (re.compile(r"\b(\d{1,3}(?:\.\d{1,3}){3}):\d+"), r"\1"),
    (re.compile(r"\bback-off [\dhms.]+ "), "back-off "),
    (re.compile(r"[\x00-\x08\x0e-\x1f\x7f]"), ""),
    (re.compile(r"\s+"), " "),
)


def stable(text: str, limit: int) -> str:
    """The text without addresses of processes, times, names of pods, credentials; at most ``limit`` characters."""
    text = redacted(text)
    for pattern, instead in _CHANGES:
        text = pattern.sub(instead, text)
    text = text.strip()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
