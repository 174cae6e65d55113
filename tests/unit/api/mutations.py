"""Manifests by the thousand, the same for the same seed: right ones, and ones with a few fields changed.

Made from the CRD's own schema, so that a new field is tried without a word here. Beside ``strategies.py``, which
shrinks what fails: these are about half right, since each begins as a service that is accepted.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

from plimsoll.api.schema import resource_schema
from tests.unit.api.manifests import ACCEPTED, EXAMPLES, service

Path = tuple[str | int, ...]
Manifest = dict[str, Any]
Schema = Mapping[str, Any]

SPEC: Final[Schema] = resource_schema()["properties"]["spec"]
LIKELIHOOD: Final = 0.2
"""Of an optional field in a spec that is made from the schema."""
_ALPHABET: Final = "az019-._/:@+=A _é\n"
_TEXTS: Final = (
    "a", "a-b", "a.b", "A_B", "a/b", "/a/b", "1", "0", "1s", "1.5s", "0s", "0.000ms", "999999m", "1e3", "0.32.0",
    "0.32.0rc1", "16Gi", "500m", ".5", "1.", "1E2", "registry.example.com/a:1", "a@sha256:0a", "", "-a", "a-", "a\n",
    "é", "\u0000", "\u2028", "$(HF_TOKEN)", "*", "..", "/", "//", "Infinity", "null", "true",
)  # fmt: skip
_ODD: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 1.0, 1.5, -0.0, 1e3, 1e300, 2**31, 2**53, 2**63 - 1, 2**63, 10**20, "", "1", "x", [],
    [None], [[]], {}, {"a": None}, {"": ""}, ["a", "a"], [1, 1.0], {"a": {"b": []}},
)  # fmt: skip
_NAMES: Final = ("a", "a-b", "9b", "a.b", "-a", "a-", "A", "a" * 50, "a" * 51, "a" * 64, "é", "a_b", "a--b", "")


def manifests(seed: int) -> Iterator[tuple[str, Manifest]]:
    """Kind of change and manifest, without end."""
    random = Random(seed)
    kinds = list(KINDS.items())
    while True:
        name, change = random.choice(kinds)
        yield name, change(random)


def _base(random: Random) -> Manifest:
    """A service that is accepted, with one more part that the schema allows where that leaves it as it is."""
    base = copy.deepcopy(random.choice((*ACCEPTED, *EXAMPLES.values())))
    part = random.choice([name for name in SPEC["properties"] if name not in base["spec"]] or ["objective"])
    return {**base, "spec": {**base["spec"], part: _made(random, SPEC["properties"][part])}}


def _from_schema(random: Random) -> Manifest:
    """Every field right by itself."""
    return service(spec=_made(random, SPEC))


def _at_limit(random: Random) -> Manifest:
    """A field at its limit, or one beyond."""
    return _changed(random, lambda schema, _: _limit(random, schema))


def _another_type(random: Random) -> Manifest:
    return _changed(random, lambda *_: copy.deepcopy(random.choice(_ODD)))


def _another_text(random: Random) -> Manifest:
    return _changed(random, lambda _, value: _edited(random, value) if isinstance(value, str) else _text(random, {}))


def _another_shape(random: Random) -> Manifest:
    """A key gone, another one, an entry twice, or what stands elsewhere."""
    manifest = _base(random)
    path = random.choice(list(_paths(manifest["spec"])))
    owner: Any = _at(manifest["spec"], path[:-1])
    key: Any = path[-1]
    match random.choice(("gone", "renamed", "twice", "moved")):
        case "gone":
            del owner[key]
        case "renamed" if isinstance(owner, dict):
            owner[f"{key}{random.choice(('', 's', '_', ' '))}"] = owner.pop(key)
        case "twice" if isinstance(owner, list):
            owner.append(copy.deepcopy(owner[key]))
        case _:
            owner[key] = copy.deepcopy(_at(manifest["spec"], random.choice(list(_paths(manifest["spec"])))))
    return manifest


def _rules(random: Random) -> Manifest:
    """Figures that rules compare, all of them close together; choices that rules tie to each other."""
    small: Callable[[], int] = lambda: random.randint(random.random() > 0.1, 4)  # noqa: E731
    few: Callable[[Manifest], Manifest] = lambda all_: {k: v for k, v in all_.items() if random.random() < 0.6}  # noqa: E731
    load = few({name: small() for name in SPEC["properties"]["load"]["properties"]})
    scaling: Manifest = few({"minReplicas": small(), "maxReplicas": small(), "activation": {"query": "q"}})
    scaling |= {"mode": random.choice(("Auto", "Fixed", "External"))}
    gpu = random.choice(({"gpu": "L4"}, {"gpus": ["L4", random.choice(("L4", "L40S"))]}, {"gpu": "L4", "gpus": ["L4"]}))
    hardware = {**gpu, **few({"maxGPUs": small() + 2})}
    method = random.choice(("MTP", "Eagle", "Eagle3", "DraftModel", "NGram"))
    speculative = few({"method": method, "tokens": small(), "model": "a/b", "acceptedTokensPerStep": small() + 0.5})
    fetched = few({"path": "a", "tokenSecret": {"name": "hf"}, "revision": "main", "claimName": "c"})
    source = few({"hub": {}, "pvc": fetched, "image": {"reference": "a"}, "hostPath": {"path": "/a"}})
    model = {"id": random.choice(("a/b", "/a/b")), **(few({"source": source}) if random.random() < 0.3 else {})}
    parts = {"load": load, "scaling": scaling, "engine": {"speculative": speculative}}
    spec = dict(random.sample(sorted(parts.items(), key=str), random.randint(0, 2)))
    return service(spec={"model": model, "hardware": hardware, "contextTokens": 2 * small() + 1, **spec})


def _named(random: Random) -> Manifest:
    return service(metadata__name=random.choice((*_NAMES, *_TEXTS)))


KINDS: Final[Mapping[str, Callable[[Random], Manifest]]] = {
    "as the schema allows": _from_schema,
    "a field at its limit": _at_limit,
    "another type": _another_type,
    "another text": _another_text,
    "another shape": _another_shape,
    "figures that rules compare": _rules,
    "another name": _named,
}


def _changed(random: Random, change: Callable[[Schema, Any], Any]) -> Manifest:
    """One or two fields changed: ``change`` gets the field's schema (of an unknown one, an empty one) and value."""
    manifest = _base(random)
    for _ in range(random.randint(1, 2)):
        path = random.choice(list(_paths(manifest["spec"])))
        owner = _at(manifest["spec"], path[:-1])
        owner[path[-1]] = change(_schema_at(path), owner[path[-1]])
    return manifest


def _made(random: Random, schema: Schema) -> Any:
    """A value that the schema allows."""
    match schema:
        case {"enum": choices}:
            return random.choice(choices)
        case {"x-kubernetes-int-or-string": True}:
            return random.choice((0, 1, "1", "500m", "16Gi"))
        case {"type": "array", "items": items}:
            made = [_made(random, items) for _ in range(random.randint(schema.get("minItems", 0), 2))]
            return made if schema.get("x-kubernetes-list-type") == "atomic" else made[:1]
        case {"type": "object"}:
            return _made_object(random, schema)
        case {"type": "boolean"}:
            return random.random() < 0.5
        case {"type": "integer" | "number"}:
            low, high = schema.get("minimum", 0), schema.get("maximum", 2**31)
            found = random.choice((low, low + 1, low + random.randint(0, 9), high))
            return found + 0.5 if schema.get("exclusiveMinimum") and found == low else found
    return _text(random, schema)


def _made_object(random: Random, schema: Schema) -> Manifest:
    if "properties" not in schema:
        values = schema.get("additionalProperties")
        return {} if values is None else {_text(random, {}): _made(random, values) for _ in range(random.randint(0, 2))}
    required = schema.get("required", ())
    return {
        name: _made(random, child)
        for name, child in schema["properties"].items()
        if name in required or random.random() < LIKELIHOOD
    }


def _text(random: Random, schema: Schema) -> str:
    """A text that the pattern allows: one of the corpus, or short and by chance."""
    pattern, longest = re.compile(schema.get("pattern", "").removesuffix("$") + r"\Z"), schema.get("maxLength", 64)
    fits = [text for text in _TEXTS if len(text) <= longest and pattern.match(text)]
    by_chance = ("".join(random.choices(_ALPHABET, k=random.randint(1, 6))) for _ in range(8))
    return random.choice([*fits, *(text for text in by_chance if pattern.match(text))] or ["a"])


def _limit(random: Random, schema: Schema) -> Any:
    by = random.choice((-1, 0, 1))
    match schema:
        case {"maximum": high, "minimum": low}:
            return random.choice((low, high)) + by
        case {"maxLength": longest}:
            return random.choice("aé1/") * max(0, random.choice((schema.get("minLength", 0), longest)) + by)
        case {"maxItems": most, "items": items}:
            return [_made(random, items) for _ in range(max(0, random.choice((schema.get("minItems", 0), most)) + by))]
        case {"maxProperties": most, "additionalProperties": values}:
            return {f"k{i}": _made(random, values) for i in range(most + by)}
    return _made(random, schema) if schema else by


def _edited(random: Random, text: str) -> str:
    """The text with one character more, less or another."""
    at = random.randint(0, len(text))
    other: str = random.choice((*_ALPHABET, ""))
    return text[:at] + other + text[at + random.randint(0, 1) :]


def _paths(node: Any, at: Path = ()) -> Iterator[Path]:
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in entries:
        yield (*at, key)
        yield from _paths(child, (*at, key))


def _at(node: Any, path: Path) -> Any:
    for part in path:
        node = node[part]
    return node


def _schema_at(path: Path) -> Schema:
    schema: Schema = SPEC
    for part in path:
        inner = schema.get("items") if isinstance(part, int) else schema.get("properties", {}).get(part)
        schema = inner or schema.get("additionalProperties") or {}
    return schema
