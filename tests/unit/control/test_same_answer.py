"""The operator and ``plimsoll plan`` give the same answer to the same manifest: same code, same facts."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from plimsoll.adapters.ports import NotFoundError
from plimsoll.api import status
from plimsoll.cli.main import app
from plimsoll.control.planning import Planner
from plimsoll.core import rollout
from plimsoll.core.plan.inventory import Inventory, Stock
from plimsoll.core.plan.result import Plan, Refusal, to_json
from plimsoll.core.request import read_request

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


class Shelf:
    """A cluster that holds nothing but ConfigMaps of one namespace."""

    def __init__(self, documents: list[Mapping[str, Any]]) -> None:
        self._maps = {d["metadata"]["name"]: d for d in documents if d["kind"] == "ConfigMap"}

    async def get(self, _kind: object, _namespace: str, name: str) -> Mapping[str, Any]:
        if name not in self._maps:
            raise NotFoundError(name)
        return self._maps[name]

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
