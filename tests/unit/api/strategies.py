"""Manifests made from the CRD's own schema: valid in every field, or with a few fields spoilt."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from plimsoll.api.schema import resource_schema
from tests.unit.api.manifests import service

SPOILERS: tuple[Any, ...] = (
    None, "", "x", "two words", "0s", "5m", "Auto", "line\n", -1, 0, 1, 3, 10**9, 2**63, 1.5,
    True, [], ["", "a"], ["a", "a"], {},
)  # fmt: skip


QUANTITIES = (1, "1", "500m", "16Gi")
MANY_FIELDS = 12
"""Objects with more than so many optional fields show a few of them at a time, or examples would be too large."""


def field(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that the schema allows; its rules over several fields may still refuse them together."""
    match schema:
        case {"type": "object"}:
            return _object(schema)
        case {"enum": _} | {"x-kubernetes-int-or-string": True}:
            return st.sampled_from(schema.get("enum", QUANTITIES))
        case {"type": "array", "items": items, "x-kubernetes-list-type": kind}:
            keys = schema.get("x-kubernetes-list-map-keys")
            unlike = (lambda item: tuple(item[key] for key in keys)) if keys else (lambda item: item)
            unique_by = None if kind == "atomic" else unlike
            return st.lists(field(items), min_size=schema.get("minItems", 0), max_size=3, unique_by=unique_by)
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "number", "maximum": high}:
            return st.floats(max(0.001, schema.get("minimum", 0)), high)
        case {"type": "integer", "minimum": low, "maximum": high}:
            return st.sampled_from((low, low + 1, low + 7, high)) | st.integers(low, high)
        case {"pattern": pattern, "maxLength": longest}:
            exact = st.from_regex(
                pattern.removesuffix("$") + r"\Z", fullmatch=True, alphabet=st.characters(codec="ascii")
            )
            return exact.filter(lambda text: len(text) <= longest)
        case {"type": "string"}:
            return st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
    raise AssertionError(schema)


def _object(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    match schema:
        case {"properties": properties}:
            return _fields(properties, set(schema.get("required", ())))
        case {"additionalProperties": values}:
            return st.dictionaries(
                st.from_regex(r"([a-z]{1,8}/)?[a-z]{1,8}", fullmatch=True), field(values), max_size=2
            )
    return st.sampled_from(({}, {"anything": {"goes": [1, "a"]}}))


def _fields(properties: dict[str, Any], required: set[str]) -> st.SearchStrategy[dict[str, Any]]:
    made = {name: field(child) for name, child in properties.items()}
    always = {name: made[name] for name in made if name in required}
    optional = [name for name in made if name not in required]
    if len(optional) <= MANY_FIELDS:
        return st.fixed_dictionaries(always, optional={name: made[name] for name in optional})
    some = st.lists(st.sampled_from(optional), max_size=3, unique=True)
    return some.flatmap(lambda names: st.fixed_dictionaries({**always, **{name: made[name] for name in names}}))


MANIFESTS = field(resource_schema()["properties"]["spec"]).map(lambda spec: service(spec=spec))
"""Services whose every field is valid by itself."""


@st.composite
def spoilt_manifests(draw: st.DrawFn) -> dict[str, Any]:
    """The same with up to two fields overwritten by something odd, which may happen to be right."""
    manifest = draw(MANIFESTS)
    for _ in range(draw(st.integers(0, 2))):
        path = draw(st.sampled_from(sorted(_paths(manifest["spec"]))))
        node = manifest["spec"]
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] = copy.deepcopy(draw(st.sampled_from(SPOILERS)))
    return manifest


def _paths(node: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, child in node.items():
        yield (*at, key)
        if isinstance(child, dict):
            yield from _paths(child, (*at, key))
