"""The operator and ``plimsoll plan`` give the same answer to the same manifest: same code, same facts."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from plimsoll.adapters.ports import ForbiddenError, Kind, NotFoundError
from plimsoll.api import status
from plimsoll.cli.main import app
from plimsoll.control.planning import Planner
from plimsoll.core import rollout
from plimsoll.core.plan.inventory import Inventory, Stock
from plimsoll.core.plan.result import Plan, Refusal, to_json
from plimsoll.core.request import read_request

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


class Shelf:
    """A cluster that holds nothing but the ConfigMaps and claims of one namespace."""

    def __init__(self, documents: list[Mapping[str, Any]], *, forbidden: tuple[str, ...] = ()) -> None:
        self._objects = {(d["kind"], d["metadata"]["name"]): d for d in documents if d["kind"] != "VLLMService"}
        self._forbidden = forbidden

    async def get(self, kind: Kind, _namespace: str, name: str) -> Mapping[str, Any]:
        if kind.kind in self._forbidden:
            raise ForbiddenError(f"may not get {kind.plural}")
        if (kind.kind, name) not in self._objects:
            raise NotFoundError(name)
        return self._objects[kind.kind, name]

    async def list(self, *_: object) -> AsyncIterator[Mapping[str, Any]]:
        none: tuple[Mapping[str, Any], ...] = ()
        for found in none:
            yield found


def _documents(path: Path) -> list[Mapping[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def _object(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"namespace": "default", "uid": "u", "generation": 1, **document["metadata"]}
    return {**document, "metadata": metadata}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_operator_and_command_line_agree(path: Path) -> None:
    documents = _documents(path)
    service = next(d for d in documents if d["kind"] == "VLLMService")
    planner = Planner(Shelf(documents), "plimsoll-system", lambda: 0.0)  # type: ignore[arg-type]
    request = read_request(_object(service))
    outcome = await planner.plan(request)
    printed = CliRunner().invoke(app, ["plan", str(path), "-o", "json"])
    shown = json.loads(printed.stdout)
    assert isinstance(outcome, Plan | Refusal)
    reported = json.loads(json.dumps(to_json(outcome)))
    assert {key: shown[key] for key in reported} == reported


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_what_is_reported_has_the_form_of_the_status(path: Path) -> None:
    documents = _documents(path)
    service = next(d for d in documents if d["kind"] == "VLLMService")
    planner = Planner(Shelf(documents), "plimsoll-system", lambda: 0.0)  # type: ignore[arg-type]
    request = read_request(_object(service))
    outcome = await planner.plan(request)
    assert isinstance(outcome, Plan)
    revision = rollout.render(request, outcome, 1)
    reported = rollout.reported_plan(rollout.Target(revision), rollout.planned_replicas(revision))
    assert reported is not None
    assert reported["choice"]["replicas"] == outcome.choice.replicas
    assert len(json.dumps(reported).encode()) <= 16_384
    read = status.Plan.model_validate(json.loads(json.dumps(reported)))
    assert read.latency is not None


async def test_replicas_over_several_nodes_are_not_rolled_out() -> None:
    spec = {
        "model": {"id": "deepseek-ai/DeepSeek-V3.2"},
        "hardware": {"gpu": "NVIDIA-H100-80GB-HBM3", "maxGPUs": 16},
        "contextTokens": 65536,
    }
    request = read_request(_object({"metadata": {"name": "large"}, "spec": spec}))
    outcome = await Planner(Shelf([]), "plimsoll-system", lambda: 0.0).plan(request)  # type: ignore[arg-type]
    assert isinstance(outcome, Plan)
    assert outcome.choice.nodes_per_replica == 2
    target = rollout.choose_target(request, outcome, [])
    assert target.revision is None
    assert target.refusal is not None
    assert target.refusal.reason == "SeveralNodes"


def _on_a_claim(*modes: str, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A claim, and a service whose weights are on it."""
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "m"}}
    spec = {
        "model": {"id": "Qwen/Qwen3-8B", "source": {"pvc": {"claimName": "m"}}},
        "hardware": {"gpu": "NVIDIA-L40S"},
        "contextTokens": 8192,
        **fields,
    }
    service = {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "VLLMService", "metadata": {"name": "svc"}, "spec": spec}
    return {**claim, "spec": {"accessModes": list(modes)}}, service


@pytest.mark.parametrize(
    ("modes", "reason"), [(("ReadWriteOnce",), "VolumeNotShareable"), (("ReadWriteMany",), None)], ids=str
)
async def test_both_look_at_the_claims(tmp_path: Path, modes: tuple[str, ...], reason: str | None) -> None:
    claim, service = _on_a_claim(*modes)
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump_all([claim, service]), encoding="utf-8")
    shown = json.loads(CliRunner().invoke(app, ["plan", str(file), "-o", "json"]).stdout)
    planner = Planner(Shelf([claim]), "plimsoll-system", lambda: 0.0)  # type: ignore[arg-type]
    outcome = await planner.plan(read_request(_object(service)))
    assert shown.get("reason") == getattr(outcome, "reason", None) == reason


async def test_a_claim_that_is_not_there_is_waited_for_and_one_that_may_not_be_read_is_not() -> None:
    claim, service = _on_a_claim("ReadWriteOnce")
    request = read_request(_object(service))
    missing = await Planner(Shelf([]), "plimsoll-system", lambda: 0.0).plan(request)  # type: ignore[arg-type]
    assert isinstance(missing, rollout.Unavailable)
    assert missing.reason == "VolumeClaimMissing"
    assert "default/m does not exist" in missing.message
    hidden = Shelf([claim], forbidden=("PersistentVolumeClaim",))
    outcome = await Planner(hidden, "plimsoll-system", lambda: 0.0).plan(request)  # type: ignore[arg-type]
    assert isinstance(outcome, Plan)
    assert any("could not be looked at" in note for note in outcome.assumptions)


@pytest.mark.parametrize(
    ("policy", "code", "says"),
    [
        ("allow: {hostNetwork: true}", 0, "feasible"),
        ("{}", 1, "PodTemplateRefused"),
        ("allow: {hostNet: true}", 2, "allow.hostNet"),
    ],
)
async def test_both_obey_the_owners_policy(tmp_path: Path, policy: str, code: int, says: str) -> None:
    _, service = _on_a_claim("ReadWriteMany", podTemplate={"spec": {"hostNetwork": True}})
    files = {"policy.yaml": policy, "service.yaml": yaml.safe_dump(service)}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    arguments = ["plan", str(tmp_path / "service.yaml"), "--pod-policy", str(tmp_path / "policy.yaml")]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == code
    assert says in answer.output


async def test_a_changed_price_is_reported_and_restarts_nothing() -> None:
    products = ["NVIDIA-L40S", "NVIDIA-H100-80GB-HBM3"]
    spec = {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpus": products}, "contextTokens": 8192}
    request = read_request(_object({"metadata": {"name": "chat"}, "spec": spec}))
    cheap, dear = (Inventory({products[0]: Stock(price=price), products[1]: Stock(price=2.0)}) for price in (1.0, 3.0))
    stocks = [cheap, cheap, dear]
    planner = Planner(Shelf([]), "plimsoll-system", lambda: 0.0, lambda: stocks.pop(0))  # type: ignore[arg-type]
    before, same, after = [await planner.plan(request) for _ in range(3)]
    assert same is before
    running = rollout.choose_target(request, before, []).revision
    assert running is not None
    target = rollout.choose_target(request, after, [running])
    assert target.revision is running
    assert target.update is not None
    assert "gpu: NVIDIA-L40S -> NVIDIA-H100-80GB-HBM3" in target.update.message
