"""Field types of the contract that carry a unit: durations and quantities, checked here as the API server does."""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from plimsoll.api.model import VALIDATIONS, Rule

_SECONDS_PER_UNIT: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_BYTES_PER_UNIT: Final[Mapping[str, int]] = {
    "": 1,
    **{unit: 1000**power for power, unit in enumerate(("k", "M", "G", "T"), 1)},
    **{unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"), 1)},
}


def duration_seconds(text: str) -> float:
    """Seconds of a Duration such as ``1.5s``, ``50ms`` or ``2m``."""
    unit = text.lstrip("0123456789.")
    return float(text.removesuffix(unit)) * _SECONDS_PER_UNIT[unit]


def quantity_bytes(text: str) -> int:
    """Bytes of a ByteQuantity such as ``16Gi``."""
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * _BYTES_PER_UNIT[unit]


def _is_longer_than_zero(text: str) -> bool:
    return duration_seconds(text) > 0


_LONGER_THAN_ZERO = Rule(
    cel="duration(self) > duration('0s')", message="a duration must be longer than 0", holds=_is_longer_than_zero
)


def _longer_than_zero(text: str) -> str:
    if not _is_longer_than_zero(text):
        raise _LONGER_THAN_ZERO.error()
    return text


Duration = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{1,6}(\.[0-9]{1,3})?(ms|s|m)$",
        max_length=12,
        json_schema_extra={VALIDATIONS: [_LONGER_THAN_ZERO.as_validation()]},
    ),
    AfterValidator(_longer_than_zero),
]
ByteQuantity = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,14}(k|M|G|T|Ki|Mi|Gi|Ti)?$", max_length=18)]
