"""From a manifest to a VLLMService: forgiving for the operator, strict for a person who is still writing it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from plimsoll.api.model import RULE_BROKEN, APIModel
from plimsoll.api.v1alpha1 import Metadata, VLLMService

Path = tuple[str | int, ...]
# What pydantic finds, in the words of somebody who writes YAML; anything else keeps pydantic's.
_MESSAGES: Final = {
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "model_type": "must be a group of fields",
    "dict_type": "must be a group of fields",
    "extra_forbidden": "unknown field",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} entries",
}
_UNCHECKED: Final = ("status",)  # of the top level: not the user's to write


@dataclass(frozen=True)
class FieldError:
    """What is wrong with one field. ``value`` is what stands there, None where nothing does."""

    path: str
    value: Any
    message: str

    def __str__(self) -> str:
        """``path: value: message``; a nested value is left out."""
        shown = f" {self.value!r}:" if isinstance(self.value, str | int | float) else ""
        return f"{self.path}:{shown} {self.message}"


class InvalidServiceError(ValueError):
    """A manifest that is no valid VLLMService; ``errors`` says why, field by field."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(map(str, errors)))


def parse_service(manifest: Mapping[str, Any]) -> VLLMService:
    """The service an object describes; unknown fields are ignored, as an older operator may meet a newer schema.

    Raises InvalidServiceError.
    """
    try:
        return VLLMService.model_validate(manifest, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidServiceError(field_errors(error, manifest)) from None


def field_errors(error: ValidationError, value: Any, model: type[APIModel] = VLLMService) -> list[FieldError]:  # noqa: ANN401
    """What pydantic found in ``value``, in the words of somebody who writes YAML."""
    return [_field_error(detail, value, model) for detail in error.errors()]


def lint_service(manifest: Mapping[str, Any]) -> list[FieldError]:
    """Everything a reviewer would object to in a manifest: what the API server refuses, and fields it would drop."""
    errors = [FieldError(key, None, "is required") for key in ("apiVersion", "kind") if key not in manifest]
    try:
        parse_service(manifest)
    except InvalidServiceError as invalid:
        errors += invalid.errors
    known = {key: value for key, value in manifest.items() if key not in _UNCHECKED}
    return errors + list(_unknown_fields(known, VLLMService, ()))


def _unknown_fields(value: Any, model: type[APIModel], path: Path) -> Iterator[FieldError]:  # noqa: ANN401
    if not isinstance(value, Mapping) or model is Metadata:
        return
    fields = _fields(model)
    for key, child in value.items():
        if key not in fields:
            yield FieldError(_spelled((*path, key)), child, f"unknown field{_nearest(str(key), fields)}")
        elif (part := _model_of(fields[key])) is not None:
            entries = enumerate(child) if isinstance(child, list) else ()
            yield from _unknown_fields(child, part, (*path, key))
            yield from (e for at, entry in entries for e in _unknown_fields(entry, part, (*path, key, at)))


def _nearest(key: str, fields: Mapping[str, FieldInfo]) -> str:
    by_folded = {name.lower(): name for name in fields}
    close = get_close_matches(key.lower().replace("_", ""), by_folded, n=1, cutoff=0.7)
    meant = f"; did you mean {by_folded[close[0]]}?" if close else ";"
    return f"{meant} known here: {', '.join(fields)}"


def _field_error(detail: ErrorDetails, manifest: Any, model: type[APIModel]) -> FieldError:  # noqa: ANN401
    path: Path = detail["loc"]
    if detail["type"] == RULE_BROKEN:
        context = detail["ctx"]
        path = (*path, *context["field"].split(".")) if context["field"] else path
        return FieldError(_spelled(path), _value_at(manifest, path), context["message"])
    if detail["type"] == "missing":
        return FieldError(_spelled(path), None, f"is required{_example(path, model)}")
    words = _MESSAGES.get(detail["type"])
    message = words.format(**detail.get("ctx", {})) if words else detail["msg"]
    return FieldError(_spelled(path), detail["input"], f"{message}{_example(path, model)}")


def _example(path: Path, model: type[APIModel]) -> str:
    """`, for example …` from the field's own examples."""
    field = _field_at(path, model)
    return f", for example {field.examples[0]}" if field is not None and field.examples else ""


def _field_at(path: Path, model: type[APIModel]) -> FieldInfo | None:
    inner: type[APIModel] | None = model
    field = None
    for part in path:
        if isinstance(part, int):
            continue
        field = _fields(inner).get(part) if inner is not None else None
        inner = _model_of(field) if field is not None else None
    return field


def _fields(model: type[APIModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_of(field: FieldInfo) -> type[APIModel] | None:
    """The model a field holds, in a list too; None for plain values."""
    choices = _types_in(field.annotation)
    return next((c for c in choices if isinstance(c, type) and issubclass(c, APIModel)), None)


def _types_in(annotation: Any) -> Iterator[Any]:  # noqa: ANN401 - any type
    yield annotation
    for inner in get_args(annotation):
        yield from _types_in(inner)


def _value_at(value: Any, path: Path) -> Any:  # noqa: ANN401 - whatever the manifest holds
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def _spelled(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
