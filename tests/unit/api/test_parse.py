"""Reading manifests: what is accepted, what is refused, and how it is said."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.api.parse import FieldError, InvalidServiceError, lint_service, parse_service
from plimsoll.api.v1alpha1 import duration_seconds
from tests.unit.api.manifests import service

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = [
    pytest.param(document, id=f"{file.stem}/{document['metadata']['name']}")
    for file in sorted((ROOT / "examples").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    if document["kind"] == "VLLMService"
]


@pytest.mark.parametrize("manifest", EXAMPLES)
def test_examples_are_free_of_findings(manifest: dict[str, Any]) -> None:
    assert lint_service(manifest) == []


def test_defaults_are_filled_in() -> None:
    spec = parse_service(service()).spec
    assert (spec.hardware.max_gpus, spec.replicas, spec.mode, spec.objective) == (8, 1, "Act", "Balanced")
    assert (spec.scaling.mode, spec.scaling.min_replicas, spec.scaling.max_replicas) == ("Auto", 1, None)
    assert (spec.tuning.mode, spec.engine.version, spec.load, spec.slo) == ("Recommend", None, None, None)


def test_null_is_the_same_as_absent() -> None:
    manifest = service()
    manifest["spec"] |= {"scaling": None, "load": {"promptTokens": None}, "replicas": None}
    assert lint_service(manifest) == []
    assert parse_service(manifest).spec.scaling.mode == "Auto"


def test_fields_of_a_newer_version_are_ignored_at_run_time() -> None:
    manifest = service(spec__scaling__cooldown="5m", metadata__managedFields=[])
    assert parse_service(manifest) == parse_service(service(spec__scaling__mode="Auto"))


REFUSED = [
    # manifest, path, part of the message
    (service(metadata__name="qwen3.5-9b"), "metadata.name", "qwen3.5-9b is not valid"),
    (service(metadata__name="a" * 51), "metadata.name", "at most 50 characters"),
    (service(metadata__name="9b"), "metadata.name", "first a letter"),
    (service(metadata__name="qwen\n"), "metadata.name", "DNS-1035"),
    (service(kind="Service"), "kind", "must be 'VLLMService'"),
    (service(spec=None), "spec", "is required"),
    (service(spec__model=None), "spec.model", "is required"),
    (service(spec__model__id="two words"), "spec.model.id", "for example Qwen/Qwen3.5-9B"),
    (service(spec__model__id="a/b/c"), "spec.model.id", "must match"),
    (service(spec__model__id="a" * 257), "spec.model.id", "at most 256 characters"),
    (service(spec__contextTokens="131072"), "spec.contextTokens", "must be a whole number"),
    (service(spec__contextTokens=True), "spec.contextTokens", "must be a whole number"),
    (service(spec__contextTokens=0), "spec.contextTokens", "must be at least 1"),
    (service(spec__contextTokens=16_777_217), "spec.contextTokens", "must be at most 16777216"),
    (service(spec__hardware__gpu=None), "spec.hardware", "exactly one of the two"),
    (service(spec__hardware__gpus=["NVIDIA-L4"]), "spec.hardware", "exactly one of the two"),
    (service(spec__hardware={"gpus": []}), "spec.hardware.gpus", "must not be empty"),
    (service(spec__hardware={"gpus": ["L4", "L4"]}), "spec.hardware.gpus", "must not name anything twice"),
    (service(spec__hardware={"gpus": ["ok", "not ok"]}), "spec.hardware.gpus[1]", "must match"),
    (service(spec__hardware__maxGPUs=0), "spec.hardware.maxGPUs", "must be at least 1"),
    (service(spec__load__concurrency=0), "spec.load.concurrency", "must be at least 1"),
    (service(spec__load__requestsPerSecond=0), "spec.load.requestsPerSecond", "must be more than 0"),
    (service(spec__load={"promptTokens": 10, "sharedPrefixTokens": 11}), "spec.load.sharedPrefixTokens", "prompt"),
    (service(spec__load={"promptTokens": 131_072, "outputTokens": 1}), "spec.load", "must not exceed contextTokens"),
    (service(spec__slo__ttft="0.0s"), "spec.slo.ttft", "longer than 0"),
    (service(spec__slo__itl="50"), "spec.slo.itl", "for example 50ms"),
    (service(spec__slo__itl=50), "spec.slo.itl", "must be text"),
    (service(spec__slo__percentile=100), "spec.slo.percentile", "must be at most 99"),
    (service(spec__objective="Cheap"), "spec.objective", "'Latency', 'Throughput' or 'Balanced'"),
    (service(spec__scaling={"minReplicas": 3, "maxReplicas": 2}), "spec.scaling.minReplicas", "maxReplicas"),
    (service(spec__scaling__minReplicas=0), "spec.scaling.minReplicas", "must be at least 1"),
    (service(spec__scaling__maxReplicas=9), "spec.scaling.maxReplicas", "must not exceed hardware.maxGPUs"),
    (service(spec__scaling__minReplicas=9), "spec.scaling.minReplicas", "must not exceed hardware.maxGPUs"),
    (service(spec__tuning__allow=["Everything"]), "spec.tuning.allow[0]", "'MaxNumSeqs'"),
    (service(spec__engine__version="v0.32.0"), "spec.engine.version", "for example 0.32.0"),
    (service(spec__engine__extraArgs="--enforce-eager"), "spec.engine.extraArgs", "must be a list"),
    (service(spec__engine__extraArgs=[""]), "spec.engine.extraArgs[0]", "must not be empty"),
    (service(spec__engine__extraArgs=["-x"] * 65), "spec.engine.extraArgs", "at most 64 entries"),
    (service(spec__replicas=-1), "spec.replicas", "must be at least 0"),
    (service(spec__mode="Observe"), "spec.mode", "'Act' or 'Shadow'"),
]


@pytest.mark.parametrize(("manifest", "path", "says"), REFUSED, ids=[f"{p}: {s}" for _, p, s in REFUSED])
def test_a_refusal_names_field_value_and_what_is_allowed(manifest: dict[str, Any], path: str, says: str) -> None:
    with pytest.raises(InvalidServiceError) as refused:
        parse_service(manifest)
    (error,) = refused.value.errors
    assert error.path == path
    assert says in error.message
    assert error in lint_service(manifest)


ACCEPTED = [
    service(spec__replicas=0, spec__scaling__mode="Fixed"),
    service(spec__model__id="gpt2"),
    service(spec__model__id="/models/qwen_3/v1.0"),
    service(spec__hardware={"gpus": ["NVIDIA-L40S", "NVIDIA-L4"], "maxGPUs": 1}),
    service(spec__load={"concurrency": 1, "requestsPerSecond": 1}),
    service(spec__load={"promptTokens": 131_071, "outputTokens": 1}),
    service(spec__load={"sharedPrefixTokens": 200_000}),
    service(spec__slo__ttft="1.5s"),
    service(spec__engine={"image": "registry.example.com:5000/vllm@sha256:0a"}),
    service(spec__engine__version="0.32.0rc1"),
    service(metadata__name="a"),
]


@pytest.mark.parametrize("manifest", ACCEPTED, ids=repr)
def test_unusual_but_right(manifest: dict[str, Any]) -> None:
    assert lint_service(manifest) == []


@pytest.mark.parametrize(
    ("manifest", "path", "says"),
    [
        (service(spec__contextToken=1), "spec.contextToken", "did you mean contextTokens?"),
        (service(spec__scaling__min_replicas=1), "spec.scaling.min_replicas", "did you mean minReplicas?"),
        (service(spec__model__textonly=True), "spec.model.textonly", "did you mean textOnly?"),
        (service(spec__tensorParallel=2), "spec.tensorParallel", "known here: model, hardware"),
        (service(sepc={}), "sepc", "did you mean spec?"),
    ],
)
def test_lint_names_unknown_fields_and_the_nearest_known(manifest: dict[str, Any], path: str, says: str) -> None:
    parse_service(manifest)
    (error,) = lint_service(manifest)
    assert error.path == path
    assert says in error.message


def test_lint_asks_for_the_kind() -> None:
    assert [e.path for e in lint_service(service(apiVersion=None, kind=None))] == ["apiVersion", "kind"]


def test_an_error_reads_as_one_line() -> None:
    assert str(FieldError("spec.contextTokens", 0, "must be at least 1")) == "spec.contextTokens: 0: must be at least 1"
    assert str(FieldError("spec.model", None, "is required")) == "spec.model: is required"


@pytest.mark.parametrize(("text", "seconds"), [("2s", 2.0), ("50ms", 0.05), ("1.5s", 1.5), ("2m", 120.0)])
def test_durations(text: str, seconds: float) -> None:
    assert duration_seconds(text) == pytest.approx(seconds)
