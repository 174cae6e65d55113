"""The generated CRD is structural, bounded, and says what kubectl needs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import typer
import yaml
from typer.testing import CliRunner

from plimsoll.api.model import APIModel
from plimsoll.api.schema import NotStructuralError, custom_resource_definition, resource_schema, structural
from plimsoll.cli import crd

ROOT = Path(__file__).resolve().parents[3]
ALLOWED = {
    "type", "description", "default", "format", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "minItems", "maxItems", "required", "properties", "items", "additionalProperties",
    "maxProperties", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string",
}  # fmt: skip


def nodes(node: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield at, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{at}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in node:
            yield from nodes(node[inner], f"{at}[]")


OURS = [
    pytest.param(at, node, id=at)
    for root in ("spec", "status")
    for at, node in nodes(resource_schema()["properties"][root], root)
]


@pytest.mark.parametrize(("at", "node"), OURS)
def test_every_node_is_structural_and_bounded(at: str, node: dict[str, Any]) -> None:
    assert node.keys() <= ALLOWED
    if node.get("x-kubernetes-int-or-string"):
        assert "type" not in node
        assert {"maxLength", "maximum"} <= node.keys(), "a quantity without a limit"
        return
    assert node["type"] in {"object", "array", "string", "integer", "number", "boolean"}
    match node["type"]:
        case "string":
            assert "enum" in node or "maxLength" in node, "a text without a limit"
        case "array":
            assert "maxItems" in node, "a list without a limit"
            assert node["x-kubernetes-list-type"] in {"atomic", "set", "map"}
        case "integer" | "number" if at.startswith("spec") and "enum" not in node:
            assert {"minimum", "maximum"} <= node.keys(), "a number without a limit"
        case "object" if "additionalProperties" in node:
            assert "maxProperties" in node, "a map without a limit"
        case "object" if "x-kubernetes-preserve-unknown-fields" in node:
            assert at.startswith(("spec.podTemplate.spec.", "spec.tuning.qualityGate.podTemplate.spec.")), (
                "only what Kubernetes itself will judge is passed on"
            )
        case "object":
            assert node["properties"]
            assert set(node.get("required", ())) <= node["properties"].keys()


@pytest.mark.parametrize(("at", "node"), [row for row in OURS if not str(row.id).endswith("[]")])
def test_every_field_is_described(at: str, node: dict[str, Any]) -> None:
    assert len(node["description"]) > 4, at


def test_descriptions_carry_default_limits_and_examples() -> None:
    spec = resource_schema()["properties"]["spec"]["properties"]
    max_gpus = spec["hardware"]["properties"]["maxGPUs"]["description"]
    assert max_gpus.endswith("Default: 8. From 1 to 100000.")
    assert spec["slo"]["properties"]["ttft"]["description"].endswith("For example 2s or 800ms.")
    assert "More than 0" in spec["load"]["properties"]["requestsPerSecond"]["description"]


def test_only_constants_are_schema_defaults() -> None:
    """What the catalogue or an engine table decides must not be frozen into stored objects."""
    spec = resource_schema()["properties"]["spec"]
    defaults = {at: node["default"] for at, node in nodes(spec, "spec") if "default" in node}
    assert defaults == {
        "spec.routing.endpointPicker.failureMode": "FailClose",
        "spec.routing.endpointPicker.port": 9002,
        "spec.model.textOnly": False,
        "spec.model.configRef.key": "config.json",
        "spec.model.source.hub.tokenSecret.key": "token",
        "spec.model.source.pvc.tokenSecret.key": "token",
        "spec.model.source.pvc.readOnly": False,
        "spec.model.source.hostPath.tokenSecret.key": "token",
        "spec.hardware.maxGPUs": 8,
        "spec.slo.percentile": 95,
        "spec.objective": "Balanced",
        "spec.scaling": {},
        "spec.scaling.mode": "Auto",
        "spec.scaling.minReplicas": 1,
        "spec.tuning": {},
        "spec.tuning.mode": "Recommend",
        "spec.tuning.freeze[].from": "00:00",
        "spec.tuning.freeze[].to": "24:00",
        "spec.tuning.load": "Learned",
        "spec.engine.lora.maxLoras": 1,
        "spec.engine.lora.maxRank": 16,
        "spec.replicas": 1,
        "spec.rollout": {},
        "spec.rollout.noSpareGPU": "Wait",
        "spec.mode": "Act",
    }


def test_the_only_default_of_a_status_says_that_there_is_none_yet() -> None:
    """An absent figure is unknown: the server must not fill it in. And kstatus takes no status at all for finished."""
    status = resource_schema()["properties"]["status"]
    assert status.pop("default") == {"observedGeneration": -1}
    assert [at for at, node in nodes(status) if "default" in node] == []


def test_conditions_merge_by_type() -> None:
    conditions = resource_schema()["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_the_paths_of_scale_exist() -> None:
    version = custom_resource_definition()["spec"]["versions"][0]
    known = {f".{at}" for at, _ in nodes(version["schema"]["openAPIV3Schema"]) for at in [at.removeprefix(".")]}
    assert set(version["subresources"]["scale"].values()) <= known


class WithUnion(APIModel):
    port: int | str


class WithMap(APIModel):
    labels: dict[str, str]


class WithFixedTuple(APIModel):
    pair: tuple[int, str]


class WithConstant(APIModel):
    kind: Literal["one"]


@pytest.mark.parametrize(
    ("model", "says"),
    [
        pytest.param(WithUnion, "WithUnion.port: a field has one type", id="a union"),
        pytest.param(WithMap, "WithMap.labels: keys of any name", id="a free-form map"),
        pytest.param(WithFixedTuple, "prefixItems", id="a tuple of fixed length"),
        pytest.param(WithConstant, "const", id="a constant"),
    ],
)
def test_what_a_structural_schema_cannot_say_is_refused(model: type[APIModel], says: str) -> None:
    with pytest.raises(NotStructuralError, match=says):
        structural(model)


def test_crd_command_prints_the_file_in_the_repository() -> None:
    in_repository = yaml.safe_load((ROOT / "crds" / "plimsoll.dev_vllmservices.yaml").read_text(encoding="utf-8"))
    assert yaml.safe_load(crd.render()) == in_repository
    assert yaml.safe_load(crd.render(crd.Output.JSON)) == in_repository


def test_crd_command_has_no_table() -> None:
    app = typer.Typer()
    app.command()(crd.crd)
    assert yaml.safe_load(CliRunner().invoke(app, []).stdout)["kind"] == "CustomResourceDefinition"
    refused = CliRunner().invoke(app, ["-o", "table"])
    assert refused.exit_code == 2
    assert "'yaml', 'json'" in refused.stderr
