"""Kubernetes quantities as numbers: ``500m``, ``1Gi``, ``2``."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

_SUFFIXES: Final[Mapping[str, Decimal]] = {
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}


def quantity(value: Any) -> Decimal | None:  # noqa: ANN401 - JSON
    """The number that a quantity stands for, or None when it is none."""
    text = str(value)
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return _decimal(text[: -len(suffix)], _SUFFIXES[suffix])
    return _decimal(text, Decimal(1))


def _decimal(text: str, factor: Decimal) -> Decimal | None:
    try:
        return Decimal(text) * factor
    except InvalidOperation:
        return None
