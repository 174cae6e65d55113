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


def field(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that the schema allows; its rules over several fields may still refuse them together."""
    match schema:
        case {"enum": values}:
            return st.sampled_from(values)
        case {"type": "object", "properties": properties}:
            required = set(schema.get("required", ()))
            made = {name: field(child) for name, child in properties.items()}
            return st.fixed_dictionaries(
                {name: made[name] for name in made if name in required},
                optional={name: made[name] for name in made if name not in required},
            )
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
