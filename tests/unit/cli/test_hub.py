"""`--hub`: asked last, only when told to, and its refusals are answers."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plimsoll.adapters.hub import HubError, HubModel
from plimsoll.cli import hub
from plimsoll.cli.main import app
from plimsoll.facts import catalogue

SERVICE = """
apiVersion: plimsoll.dev/v1alpha1
kind: VLLMService
metadata: {name: svc}
spec: {model: {id: %s}, hardware: {gpu: NVIDIA-L40S}, contextTokens: 8192}
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models the hub was asked for; it knows acme/nine, and cannot be reached for acme/away."""
    seen: list[str] = []
    entry = catalogue.find("Qwen/Qwen3-8B")
    assert entry is not None

    def fetch(model: str) -> HubModel:
        seen.append(model)
        if model == "acme/away":
            raise HubError("the hub cannot be reached", unreachable=True)
        if model != "acme/nine":
            raise HubError(f"{model} is gated: accept its licence")
        return HubModel(entry.config, entry.quant_config, 16_000_000_000, "the hub")

    monkeypatch.setattr(hub, "fetch", fetch)
    hub.hub_config.cache_clear()
    return seen


def _plan(tmp_path: Path, model: str, *options: str) -> tuple[int, dict[str, Any]]:
    path = tmp_path / "svc.yaml"
    path.write_text(SERVICE % model)
    done = CliRunner().invoke(app, ["plan", str(path), "-o", "json", *options])
    return done.exit_code, json.loads(done.stdout)


def test_the_hub_is_not_asked_unless_told(tmp_path: Path, asked: list[str]) -> None:
    code, result = _plan(tmp_path, "acme/nine")
    assert (code, result["reason"], asked) == (1, "UnknownModel", [])


def test_the_hub_is_not_asked_for_what_the_catalogue_knows(tmp_path: Path, asked: list[str]) -> None:
    code, _ = _plan(tmp_path, "Qwen/Qwen3-8B", "--hub")
    assert (code, asked) == (0, [])


def test_a_model_of_the_hub_is_planned_with_its_own_size(tmp_path: Path, asked: list[str]) -> None:
    code, result = _plan(tmp_path, "acme/nine", "--hub")
    assert (code, asked) == (0, ["acme/nine"])
    weights = next(item for item in result["memory"] if item["item"] == "weights")
    assert weights["basis"] == "exact"


@pytest.mark.parametrize(("model", "code"), [("acme/gated", 1), ("acme/away", 3)])
def test_what_the_hub_refuses_is_the_answer(tmp_path: Path, asked: list[str], model: str, code: int) -> None:
    exit_code, result = _plan(tmp_path, model, "--hub")
    assert exit_code == code
    assert result["message"].startswith("spec.model.id:")
    assert asked == [model]


@pytest.mark.parametrize(
    ("model", "code", "outcome"),
    [("acme/nine", 0, "starts"), ("acme/gated", 0, "unknown"), ("acme/away", 3, "unknown")],
)
def test_predict_asks_the_hub_too(asked: list[str], model: str, code: int, outcome: str) -> None:
    row = {"model": model, "gpu": "NVIDIA-L40S", "flags": {"max_model_len": 8192}}
    done = CliRunner().invoke(app, ["predict", "-", "--hub"], input=json.dumps(row))
    assert (done.exit_code, json.loads(done.stdout)["outcome"]) == (code, outcome)
    assert asked == [model]
