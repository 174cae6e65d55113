"""Kubernetes quantities as numbers (``500m``, ``1Gi``, ``2``), and bytes as people read them."""

from collections.abc import Mapping
from decimal import Decimal, DecimalException
from typing import Any, Final

GIB: Final = 1 << 30
_SUFFIXES: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("0.001"),
    **{suffix: Decimal(10 ** (3 * power)) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(2 ** (10 * power)) for power, suffix in enumerate("KMGTPE", 1)},
}


def quantity(value: Any) -> Decimal | None:  # noqa: ANN401 - JSON
    """The number that a quantity stands for, or None when it is none."""
    text = str(value)
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return _decimal(text[: -len(suffix)], _SUFFIXES[suffix])
    return _decimal(text, Decimal(1))


def gib(size_bytes: float) -> str:
    """Bytes as GiB with two decimals."""
    return f"{size_bytes / GIB:.2f} GiB"


def _decimal(text: str, factor: Decimal) -> Decimal | None:
    try:
        number = Decimal(text) * factor
    except DecimalException:
        return None
    return number if number.is_finite() else None
