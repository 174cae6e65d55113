"""What every part of the contract has in common: spelling, strictness, and rules that hold in two languages.

The API server and this process must accept the same objects. So numbers are not read from text, ``null`` is the same
as absent, ``8.0`` is a whole number, and a rule over several fields is written once, as CEL for the server beside the
same rule in Python. ``e2e/agreement.py`` asks a real server about services by the thousand.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

VALIDATIONS = "x-kubernetes-validations"
RULE_BROKEN = "rule"
"""Type of the pydantic error that a broken Rule gives; its context carries ``message`` and ``field``."""


@dataclass(frozen=True)
class Rule:
    """One rule over the fields of an object.

    ``holds`` is the rule for this process; None where only the API server can judge, because the rule compares with the
    stored object (``oldSelf``). ``field`` is the field to blame, as it is spelled in YAML; empty: the object itself.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None
    field: str = ""

    def as_validation(self) -> dict[str, str]:
        """The entry for ``x-kubernetes-validations``."""
        # The schema says nothing of metadata's fields, so CEL could not name one.
        where = {"fieldPath": f".{self.field}"} if self.field and not self.field.startswith("metadata.") else {}
        return {"rule": self.cel, "message": self.message, **where}

    def error(self) -> PydanticCustomError:
        """What pydantic reports when the rule is broken."""
        return PydanticCustomError(RULE_BROKEN, "{message}", {"message": self.message, "field": self.field})


def unique(items: tuple[str, ...]) -> tuple[str, ...]:
    """``items``, refused when one stands twice: the API server does so for lists of type ``set``."""
    if len(set(items)) < len(items):
        raise PydanticCustomError("duplicates", "must not name anything twice")
    return items


def as_the_server_reads(value: Any) -> Any:  # noqa: ANN401 - whatever the manifest holds
    """A group of fields as kubectl sends and the API server reads it: nulls are dropped, and 8.0 is 8."""
    return {k: _whole(v) for k, v in value.items() if v is not None} if isinstance(value, Mapping) else value


def _whole(value: Any) -> Any:  # noqa: ANN401 - whatever the manifest holds
    """A number without a fraction as a whole one, in a list of numbers too."""
    if isinstance(value, list):
        return [int(each) if isinstance(each, float) and each.is_integer() else each for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class APIModel(BaseModel):
    """A part of the contract: camelCase outside, snake_case inside; fields of a newer version are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, strict=True, allow_inf_nan=False
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the manifest holds
        return as_the_server_reads(value)

    @model_validator(mode="after")
    def _obey_rules(self) -> Self:
        for rule in self.rules:
            if rule.holds is not None and not rule.holds(self):
                raise rule.error()
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The model's schema with its rules, for ``schema.py``."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.rules:
            schema[VALIDATIONS] = [rule.as_validation() for rule in cls.rules]
        return schema
