"""What Argo CD shows of a VLLMService: our scripts, in Lua, on every status the operator can produce."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given

from plimsoll.core.conditions import Facts
from tests.kstatus import compute
from tests.unit.core.situations import FACTS, SERVING, live
from tests.unit.deploy.argo import SCRIPTS, health, run

AGREEMENT: Final = {"Current": "Healthy", "InProgress": "Progressing", "Failed": "Degraded"}
ACTIONS: Final = SCRIPTS / "actions"


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@given(FACTS)
def test_argo_and_flux_agree_on_whatever_is_reported(facts: Facts) -> None:
    shown, waited_for = health(live(facts)), compute(live(facts))
    on_hold = bool(facts.held) and waited_for.status != "Failed" and not facts.waiting
    assert shown["status"] == ("Suspended" if on_hold else AGREEMENT[waited_for.status])
    assert shown["message"]


@pytest.mark.parametrize("case", _read(SCRIPTS / "health_test.yaml")["tests"], ids=lambda case: case["inputPath"])
def test_the_recorded_objects_show_as_stated(case: dict[str, Any]) -> None:
    assert health(_read(SCRIPTS / case["inputPath"])) == case["healthStatus"]


def test_every_recorded_object_is_tried() -> None:
    tried = {case["inputPath"] for case in _read(SCRIPTS / "health_test.yaml")["tests"]}
    assert tried == {f"testdata/{path.name}" for path in (SCRIPTS / "testdata").iterdir()}


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(None, id="no status at all"),
        pytest.param({"observedGeneration": 3}, id="no conditions"),
        pytest.param(
            {"observedGeneration": 2, "conditions": live(Facts(fleet=SERVING))["status"]["conditions"]}, id="old"
        ),
    ],
)
def test_what_is_not_known_is_progressing(status: dict[str, Any] | None) -> None:
    assert health({"metadata": {"generation": 3}, "status": status})["status"] == "Progressing"


@pytest.mark.parametrize("case", _read(ACTIONS / "action_test.yaml")["discoveryTests"], ids=lambda c: c["inputPath"])
def test_only_the_actions_that_make_sense_are_offered(case: dict[str, Any]) -> None:
    offered = run((ACTIONS / "discovery.lua").read_text(encoding="utf-8"), _read(ACTIONS / case["inputPath"]))
    assert [{"name": name, **offered[name]} for name in sorted(offered)] == case["result"]


@pytest.mark.parametrize("case", _read(ACTIONS / "action_test.yaml")["actionTests"], ids=lambda c: c["action"])
def test_an_action_changes_one_annotation(case: dict[str, Any]) -> None:
    script = (ACTIONS / case["action"] / "action.lua").read_text(encoding="utf-8")
    changed = run(script, _read(ACTIONS / case["inputPath"]))
    annotations = changed["metadata"]["annotations"]
    if "plimsoll.dev/restart" in annotations:
        assert annotations["plimsoll.dev/restart"].endswith("Z")
        annotations["plimsoll.dev/restart"] = "0001-01-01T00:00:00Z"
    assert changed == _read(ACTIONS / case["expectedOutputPath"])
