"""The CustomResourceDefinition, made from the models.

Pydantic writes JSON Schema with references, titles, nulls and numeric exclusive bounds; Kubernetes wants a structural
schema: one type at every node, nothing by reference, nothing but validation in combinators (its documentation on
CustomResourceDefinitions, "Specifying a structural schema"). What cannot be said in it is refused here, not guessed.
"""

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from plimsoll.api import names
from plimsoll.api.model import VALIDATIONS, APIModel
from plimsoll.api.status import NOT_OBSERVED, VLLMServiceStatus
from plimsoll.api.v1alpha1 import VLLMService, VLLMServiceSpec

Schema = dict[str, Any]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
CRD_NAME: Final = f"{names.PLURAL}.{names.GROUP}"
_INT32_MAX: Final = 2**31 - 1
_KEPT: Final = (
    "format", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "required",
    "maxProperties", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", VALIDATIONS, PRESERVE, INT_OR_STRING,
)  # fmt: skip
_REWRITTEN: Final = frozenset({
    "type", "title", "description", "default", "examples", "properties", "items", "exclusiveMinimum",
    "exclusiveMaximum", "additionalProperties", "$defs",
})  # fmt: skip


class NotStructuralError(TypeError):
    """A model uses something that a structural schema cannot say; the message names the place."""


def custom_resource_definition() -> Schema:
    """The whole CRD, as a dict ready for YAML."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": CRD_NAME,
            "annotations": {names.ANNOTATION_VERSION: version("plimsoll-operator")},
            "labels": {names.LABEL_NAME: "plimsoll", names.LABEL_PART_OF: "plimsoll"},
        },
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": list(names.SHORT_NAMES),
                "categories": list(names.CATEGORIES),
            },
            "versions": [_version()],
        },
    }


def _version() -> Schema:
    return {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": resource_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": list(_printer_columns()),
    }


def _printer_columns() -> Iterator[Schema]:
    """What `kubectl get vllm` shows; docs/adr/0009 says why GPU reads the spec."""
    ready = '.status.conditions[?(@.type=="Ready")]'
    yield {"name": "Model", "type": "string", "jsonPath": ".spec.model.id"}
    yield {"name": "GPU", "type": "string", "jsonPath": ".spec.hardware['gpu','gpus']"}
    yield {"name": "Context", "type": "integer", "jsonPath": ".spec.contextTokens"}
    yield {"name": "Replicas", "type": "string", "jsonPath": ".status.summary.replicas", "description": "Ready/wanted."}
    yield {"name": "Ready", "type": "string", "jsonPath": f"{ready}.status"}
    yield {"name": "Reason", "type": "string", "jsonPath": f"{ready}.reason"}
    yield {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    wide = {"priority": 1}
    yield {"name": "Planned GPU", "type": "string", "jsonPath": ".status.plan.choice.gpu", **wide}
    yield {"name": "Served By", "type": "string", "jsonPath": ".status.servedBy", **wide}
    yield {
        "name": "Bottleneck",
        "type": "string",
        "jsonPath": ".status.observed.bottleneck",
        "description": "What limits the service now.",
        **wide,
    }
    yield {"name": "TP", "type": "integer", "jsonPath": ".status.plan.choice.tensorParallel", **wide}
    yield {
        "name": "KV Tokens",
        "type": "integer",
        "jsonPath": ".status.plan.kv.tokens",
        "description": "Tokens the KV cache of one engine is planned to hold.",
        **wide,
    }


def resource_schema() -> Schema:
    """The schema of a VLLMService as the API server sees it: its own metadata rules, our spec and status."""
    return {
        "type": "object",
        "description": VLLMService.__doc__,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(VLLMServiceSpec),
            # kstatus takes an object without any status for finished; this default says that nobody has looked yet.
            "status": structural(VLLMServiceStatus) | {"default": {"observedGeneration": NOT_OBSERVED}},
        },
        VALIDATIONS: [rule.as_validation() for rule in VLLMService.rules],
    }


def structural(model: type[APIModel]) -> Schema:
    """The structural schema of one model, everything inlined."""
    schema = model.model_json_schema(by_alias=True)
    return _node(schema, schema.get("$defs", {}), model.__name__)


def _node(raw: Mapping[str, Any], defs: Mapping[str, Schema], at: str) -> Schema:
    """One node, its children below it. Raises NotStructuralError, naming ``at``."""
    raw = _resolved(raw, defs, at)
    _refuse_foreign(raw, at)
    children = _children(raw, defs, at)
    default = _default(raw, children)
    description = _manual(raw, default)
    return {
        **({} if raw.get(INT_OR_STRING) else {"type": raw["type"]}),
        **({"description": description} if description else {}),
        **default,
        **_format(raw),
        **{key: raw[key] for key in _KEPT if key in raw},
        **_exclusive_bounds(raw),
        **children,
    }


def _refuse_foreign(raw: Mapping[str, Any], at: str) -> None:
    foreign = sorted(raw.keys() - _REWRITTEN - set(_KEPT))
    if foreign or ("type" not in raw and not raw.get(INT_OR_STRING)):
        raise NotStructuralError(
            f"{at}: a structural schema has no place for {', '.join(foreign) or 'a field without a type'}"
        )
    if raw.get("additionalProperties") is True and not raw.get(PRESERVE):
        raise NotStructuralError(f"{at}: values of any kind are not part of the contract")
    if isinstance(raw.get("additionalProperties"), Mapping) and "maxProperties" not in raw:
        raise NotStructuralError(f"{at}: keys of any name need a limit to how many there may be")


def _children(raw: Mapping[str, Any], defs: Mapping[str, Schema], at: str) -> Schema:
    values = raw.get("additionalProperties")
    match raw.get("type"):
        case "object" if isinstance(values, Mapping):
            return {"additionalProperties": _node(values, defs, f"{at}[]")}
        case "object" if raw.get(PRESERVE):
            return {}
        case "object":
            return {"properties": {key: _node(child, defs, f"{at}.{key}") for key, child in raw["properties"].items()}}
        case "array":
            list_type = {"x-kubernetes-list-type": raw.get("x-kubernetes-list-type", "atomic")}
            return {**list_type, "items": _node(raw["items"], defs, f"{at}[]")}
        case _:
            return {}


def _format(raw: Mapping[str, Any]) -> Schema:
    if raw.get("type") != "integer":
        return {}
    return {"format": "int32" if raw.get("maximum", _INT32_MAX + 1) <= _INT32_MAX else "int64"}


def _resolved(raw: Mapping[str, Any], defs: Mapping[str, Schema], at: str) -> Schema:
    """``raw`` with its reference filled in and its Optional taken off; what the field itself says wins."""
    node = dict(raw)
    while "$ref" in node or ("anyOf" in node and not node.get(INT_OR_STRING)):
        if "$ref" in node:
            target = defs[node.pop("$ref").removeprefix("#/$defs/")]
        else:
            choices = [choice for choice in node.pop("anyOf") if choice.get("type") != "null"]
            if len(choices) != 1:
                raise NotStructuralError(f"{at}: a field has one type, or one type and None")
            target = choices[0]
        node = {**target, **node}
    if node.get(INT_OR_STRING):
        node.pop("anyOf", None)
    return node


def _default(raw: Mapping[str, Any], children: Schema) -> Schema:
    """The default worth storing: that of a plain value, and ``{}`` for an object whose fields have defaults."""
    match raw.get("default"):
        case None | []:
            return {}
        case dict():
            inside = any("default" in child for child in children.get("properties", {}).values())
            return {"default": {}} if inside else {}
        case value:
            return {"default": value}


def _exclusive_bounds(raw: Mapping[str, Any]) -> Schema:
    """Exclusive bounds the way Kubernetes spells them: the number beside a flag."""
    pairs = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
    return {k: v for flag, bound in pairs if flag in raw for k, v in ((bound, raw[flag]), (flag, True))}


def _manual(raw: Mapping[str, Any], default: Schema) -> str:
    """The field's description, with default, limits and examples from the field itself."""
    return " ".join(part for part in (raw.get("description", ""), *_facts(raw, default)) if part)


def _facts(raw: Mapping[str, Any], default: Schema) -> Iterator[str]:
    match default.get("default"):
        case None | {}:
            pass
        case bool() as flag:
            yield f"Default: {str(flag).lower()}."
        case value:
            yield f"Default: {value}."
    match raw:
        case {"exclusiveMinimum": above, "maximum": high}:
            yield f"More than {above}, at most {high}."
        case {"minimum": low, "maximum": high}:
            yield f"From {low} to {high}."
    if examples := raw.get("examples"):
        yield f"For example {' or '.join(_plain(example) for example in examples)}."


def _plain(example: object) -> str:
    return f"[{', '.join(map(str, example))}]" if isinstance(example, list) else str(example)
