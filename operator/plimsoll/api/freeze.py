"""``spec.tuning.freeze``: times of the week in which no experiment runs."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, Field
from pydantic.config import JsonDict

from plimsoll.api.model import APIModel, Rule, unique

_SET: Final[JsonDict] = {"x-kubernetes-list-type": "set"}
_CLOCK: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"
Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
Days = Annotated[
    tuple[Day, ...],
    Field(min_length=1, max_length=7, strict=False, json_schema_extra=_SET),
    AfterValidator(unique),
]
DAYS: Final[tuple[Day, ...]] = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class FreezeWindow(APIModel):
    """A time of the week, by a clock on the wall of its time zone."""

    rules: ClassVar = (
        Rule(
            cel="self.from != self.to",
            message="from and to must differ: leave both out for whole days",
            holds=lambda window: window.from_ != window.to,
            field="to",
        ),
    )

    days: Days | None = Field(default=None, description="Days on which it begins. Left out: every day.")
    from_: str = Field(
        default="00:00",
        alias="from",
        description="When it begins: hours and minutes, in quotes.",
        pattern=f"^{_CLOCK}$",
        max_length=5,
        examples=["08:00"],
    )
    to: str = Field(
        default="24:00",
        description="When it ends. Not later than from: on the day after.",
        pattern=f"^({_CLOCK}|24:00)$",
        max_length=5,
        examples=["18:00"],
    )
    time_zone: str = Field(
        description="Name of the time zone in the IANA data base; daylight saving is followed.",
        pattern=r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$",
        max_length=64,
        examples=["Europe/Berlin", "Etc/UTC"],
    )
