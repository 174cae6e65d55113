"""What docs/gitops.md shows works as shown: its YAML is read, its names are ours, its script is the one under test."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from plimsoll.api import names
from plimsoll.api.reasons import REASONS
from tests.unit.deploy.argo import SCRIPTS, run

PAGE: Final = Path("docs/gitops.md").read_text(encoding="utf-8")
SNIPPETS: Final[list[Any]] = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def _snippet(kind: str) -> dict[str, Any]:
    return next(s for s in SNIPPETS if s.get("kind") == kind)


def test_argo_is_told_of_our_kind_and_only_of_the_count() -> None:
    ignored = _snippet("Application")["spec"]["ignoreDifferences"]
    assert ignored == [{"group": names.GROUP, "kind": names.KIND, "jsonPointers": ["/spec/replicas"]}]


def test_the_config_map_that_the_page_applies_runs_the_tested_scripts() -> None:
    assert "deploy/argocd/argocd-cm.yaml" in PAGE
    data = yaml.safe_load(Path("deploy/argocd/argocd-cm.yaml").read_text(encoding="utf-8"))["data"]
    assert data["resource.customizations.health.plimsoll.dev_VLLMService"] == (SCRIPTS / "health.lua").read_text()
    actions = yaml.safe_load(data["resource.customizations.actions.plimsoll.dev_VLLMService"])
    offered = run(actions["discovery.lua"], {"metadata": {}})
    assert {definition["name"] for definition in actions["definitions"]} == offered.keys()


def test_flux_waits_and_reads_conditions_that_exist() -> None:
    assert _snippet("Kustomization")["spec"]["wait"] is True
    (expressions,) = next(s["healthCheckExprs"] for s in SNIPPETS if "healthCheckExprs" in s)
    assert (expressions["apiVersion"], expressions["kind"]) == (names.API_VERSION, names.KIND)
    text = " ".join(expressions[key] for key in ("failed", "inProgress", "current"))
    assert set(re.findall(r"c\.type == '(\w+)'", text)) <= names.CONDITIONS.keys()
    assert set(re.findall(r"c\.reason == '(\w+)'", text)) <= REASONS.keys()


@pytest.mark.parametrize("word", [names.MANAGER_CHILDREN, names.MANAGER_SCALE, names.MANAGER_STATUS])
def test_the_field_managers_are_named(word: str) -> None:
    assert f"`{word}`" in PAGE


def test_every_reason_that_is_named_exists() -> None:
    assert set(re.findall(r"reason `(\w+)`", PAGE)) <= REASONS.keys()
