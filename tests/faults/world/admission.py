"""What the API server does with a VLLMService on its way in: prune, default, validate. Schema from ``crds/``.

Cross-field rules are CEL there; here the operator's own model says them (``api/v1alpha1.py``), which the suite of
``e2e/test_crd.py`` holds equal to the real API server. The one rule about a change is spelled out.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from plimsoll.adapters.ports import InvalidError
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from tests.faults.world.kinds import UnfaithfulError, crd_schema

Object = dict[str, Any]

TRANSITION_RULE: Final = (
    "oldSelf.scaling.mode != 'Auto' || self.scaling.mode != 'Auto' || self.replicas == oldSelf.replicas"
)
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def admitted(obj: Object, before: Mapping[str, Any] | None) -> Object:
    """The object as it would be stored.

    Raises:
        InvalidError: as 422, with the fields.

    """
    schema = crd_schema()
    filled = dict(obj)
    for key in ("spec", "status"):
        part = schema["properties"][key]
        if before is not None and key in obj and obj[key] is before.get(key):
            continue  # it was let in before, and nobody has touched it
        if key in obj or "default" in part:
            filled[key] = shaped(obj.get(key, part.get("default")), part)
    changed = before is None or before["spec"] != filled.get("spec")
    wrong = [*_wrong(filled.get("spec"), schema["properties"]["spec"], "spec")] if changed else []
    if "status" in filled and (before is None or filled["status"] is not before.get("status")):
        wrong += _wrong(filled["status"], schema["properties"]["status"], "status")
    name = obj["metadata"]["name"]
    if not (_NAME.fullmatch(name) and len(name) <= 50):
        wrong.append(f"metadata.name: {name!r} must be a DNS-1035 label of at most 50 characters")
    if not wrong and changed:
        wrong += _across(filled["spec"], before)
    if wrong:
        raise InvalidError(f"VLLMService {name!r} is invalid: {'; '.join(wrong)}", status=422)
    return filled


def typed(wanted: Object) -> None:
    """An applied manifest must be of the schema's types, or it cannot be merged.

    Raises:
        InvalidError: with 500, as the API server answers then; the adapter knows it by its words.

    """
    for part in ("spec", "status"):
        if part in wanted and (wrong := next(_untyped(wanted[part], crd_schema()["properties"][part], part), "")):
            raise InvalidError(f"failed to create typed patch object: {wrong}", status=500)


def _untyped(value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    known, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in known or isinstance(rest, Mapping):
                yield from _untyped(inner, known.get(key) or rest or {}, f"{at}.{key}")
            elif not schema.get(_PRESERVE) and rest is not True:
                yield f"{at}.{key}: field not declared in schema"
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _untyped(entry, schema.get("items") or {}, f"{at}[{index}]")
    elif schema.get("type") == "integer" and isinstance(value, str):
        yield f"{at}: expected numeric (int or float), got string"


def _across(spec: Mapping[str, Any], before: Mapping[str, Any] | None) -> Iterator[str]:
    try:
        VLLMServiceSpec.model_validate(spec)
    except ValidationError as error:
        for each in error.errors():
            yield f"{'.'.join(['spec', *map(str, each['loc'])])}: {each['msg']}"
    both_auto = before is not None and before["spec"]["scaling"]["mode"] == spec["scaling"]["mode"] == "Auto"
    if before is not None and both_auto and before["spec"]["replicas"] != spec["replicas"]:
        yield "spec: replicas cannot be changed while scaling.mode is Auto"


def shaped(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value without fields that the schema does not know, and with its defaults."""
    if isinstance(value, dict):
        return _shaped_object(value, schema)
    if isinstance(value, list) and "items" in schema:
        return [shaped(entry, schema["items"]) for entry in value]
    return value


def _shaped_object(value: Object, schema: Mapping[str, Any]) -> Object:
    known, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    found = {}
    for key, inner in value.items():
        if inner is None and not (known.get(key) or {}).get("nullable"):
            continue
        if key in known:
            found[key] = shaped(inner, known[key])
        elif isinstance(rest, Mapping):
            found[key] = shaped(inner, rest)
        elif schema.get(_PRESERVE) or rest is True:
            found[key] = inner
    for key, inner in known.items():
        if key not in found and "default" in inner:
            found[key] = shaped(inner["default"], inner)
    return found


def _wrong(value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    """What does not agree with the structural schema."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield f"{at}: must be an integer or a string"
        return
    expected = schema.get("type")
    if expected is None:
        return
    if not isinstance(value, _TYPES[expected]) or (isinstance(value, bool) and expected != "boolean"):
        yield f"{at}: must be of type {expected}"
        return
    yield from _out_of_range(value, schema, at)
    if isinstance(value, dict):
        yield from _wrong_fields(value, schema, at)
    elif isinstance(value, list) and "items" in schema:
        for index, entry in enumerate(value):
            yield from _wrong(entry, schema["items"], f"{at}[{index}]")


def _wrong_fields(value: Object, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    known, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    for key in schema.get("required") or ():
        if key not in value:
            yield f"{at}.{key}: Required value"
    for key, inner in value.items():
        if key in known:
            yield from _wrong(inner, known[key], f"{at}.{key}")
        elif isinstance(rest, Mapping):
            yield from _wrong(inner, rest, f"{at}.{key}")


_CHECKED: Final = frozenset(
    (
        "type", "description", "default", "properties", "required", "items", "additionalProperties", "enum", "pattern",
        "minimum", "exclusiveMinimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties",
        "format",
    )
)  # fmt: skip


def _out_of_range(value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    if unknown := [key for key in schema if key not in _CHECKED and not key.startswith("x-kubernetes-")]:
        raise UnfaithfulError(f"{at}: the CRD uses {unknown[0]}, which admission.py does not check")
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: Unsupported value: {value!r}"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{at}: {value!r} should match {schema['pattern']!r}"
    size = len(value) if isinstance(value, str | list | dict) else value
    if schema.get("exclusiveMinimum") and size == schema["minimum"]:
        yield f"{at}: {value!r} must be more than {schema['minimum']}"
    for limit, too_small, too_large in _LIMITS[type(value)]:
        if limit in schema and ((too_small and size < schema[limit]) or (too_large and size > schema[limit])):
            yield f"{at}: {value!r} is outside {limit} {schema[limit]}"


_NUMBERS: Final = (("minimum", True, False), ("maximum", False, True))
_LIMITS: Final[Mapping[type, tuple[tuple[str, bool, bool], ...]]] = {
    str: (("minLength", True, False), ("maxLength", False, True)),
    list: (("minItems", True, False), ("maxItems", False, True)),
    dict: (("maxProperties", False, True),),
    int: _NUMBERS,
    float: _NUMBERS,
    bool: (),
}
