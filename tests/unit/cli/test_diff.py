"""``plimsoll diff``: what changes, which pods restart, what it costs; folders, stdin and archives; exit codes."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from plimsoll.cli.main import app
from plimsoll.core.plan.model import bundled_config
from tests.unit.cli.services import H100, service, written


def diff(folder: Path, old: str, new: str, *options: str) -> Result:
    (folder / "old.yaml").write_text(old)
    (folder / "new.yaml").write_text(new)
    result = CliRunner().invoke(app, ["diff", str(folder / "old.yaml"), str(folder / "new.yaml"), *options])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def only_service(result: Result) -> dict[str, Any]:
    (found,) = json.loads(result.stdout)["services"]
    assert isinstance(found, dict)
    return found


def test_the_same_twice_is_exit_0(tmp_path: Path) -> None:
    result = diff(tmp_path, written(service()), written(service(scaling={"mode": "Auto"})))
    assert (result.exit_code, result.stdout) == (0, "nothing differs in 1 service (1 GPUs)\n")


@pytest.mark.parametrize(
    ("change", "what", "restarts"),
    [
        pytest.param({"contextTokens": 16384}, "--max-model-len", "1 pod replaced", id="a flag"),
        pytest.param({"hardware": {"gpu": "NVIDIA-L40S"}}, "GPU", "1 pod replaced", id="another GPU"),
        pytest.param({"engine": {"image": "mirror/vllm:v0.32.0"}}, "spec.engine.image", "1 pod replaced", id="image"),
        pytest.param({"engine": {"extraArgs": ["--seed=1"]}}, "--seed", "1 pod replaced", id="an argument"),
        pytest.param({"scaling": {"minReplicas": 3}}, "replicas", "no restart; 2 pods started", id="replicas alone"),
        pytest.param({"tuning": {"mode": "Off"}}, "spec.tuning.mode", "none", id="tuning"),
        pytest.param({"hardware": {"gpu": H100, "maxGPUs": 7}}, "spec.hardware.maxGPUs", "none", id="same pods"),
    ],
)
def test_what_changes_and_which_pods_restart(tmp_path: Path, change: dict[str, Any], what: str, restarts: str) -> None:
    result = diff(tmp_path, written(service()), written(service(**change)), "-o", "json")
    assert result.exit_code == 1
    found = only_service(result)
    assert what in [each["what"] for each in found["changes"]]
    assert found["restarts"].startswith(restarts)
    assert restarts != "none" or found["restarts"] == "none"


@pytest.mark.parametrize(
    ("replicas", "pods", "gpus"),
    [
        pytest.param(3, "no restart; 2 pods started", 3, id="more"),
        pytest.param(0, "no restart; 1 pod stopped", 0, id="parked"),
    ],
)
def test_a_count_set_by_hand_counts(tmp_path: Path, replicas: int, pods: str, gpus: int) -> None:
    one, other = (service(scaling={"mode": "Fixed"}, replicas=count) for count in (1, replicas))
    found = only_service(diff(tmp_path, written(one), written(other), "-o", "json"))
    assert (found["restarts"], found["gpus"]) == (pods, {"before": 1, "after": gpus})


def test_the_order_of_arguments_restarts_pods_and_is_said(tmp_path: Path) -> None:
    first, second = (service(engine={"extraArgs": list(args)}) for args in (("--seed=1", "--max-logprobs=5"),) * 2)
    second["spec"]["engine"]["extraArgs"].reverse()
    found = only_service(diff(tmp_path, written(first), written(second), "-o", "json"))
    assert found["restarts"].startswith("1 pod replaced")
    assert any("pod template" in each["what"] for each in found["changes"])


def test_a_new_restart_annotation_restarts(tmp_path: Path) -> None:
    again = service()
    again["metadata"]["annotations"] = {"plimsoll.dev/restart": "today"}
    found = only_service(diff(tmp_path, written(service()), written(again), "-o", "json"))
    assert found["restarts"].startswith("1 pod replaced")


def test_a_new_engine_shows_what_becomes_of_the_share_and_the_pool(tmp_path: Path) -> None:
    """A23, E06: graphs moved into the share of memory, whose default moved as well: both are said beside the pool."""
    model = {"id": "Qwen/Qwen3.5-9B"}
    old, new = (service(engine={"version": version}, model=model) for version in ("0.19.1", "0.32.0"))
    found = only_service(diff(tmp_path, written(old), written(new), "-o", "json"))
    changes = {each["what"]: each for each in found["changes"]}
    asked, share = changes["--gpu-memory-utilization"], changes["share of memory without CUDA graphs"]
    assert (asked["before"], asked["after"]) == ("0.9", "0.92")
    assert float(share["before"]) == 0.9
    assert 0.9 < float(share["after"]) < 0.92
    assert {"KV tokens an engine", "left for KV cache, fullest GPU"} <= changes.keys()


def test_services_that_come_and_go(tmp_path: Path) -> None:
    old, new = written(service("goes"), service("stays")), written(service("stays"), service("comes"))
    result = diff(tmp_path, old, new)
    assert result.exit_code == 1
    assert "llm/comes: added" in result.stdout
    assert "1 pod started" in result.stdout
    assert "llm/goes: removed" in result.stdout
    assert "1 pod deleted" in result.stdout
    assert "llm/stays" not in result.stdout
    assert "1 added, 1 removed of 3 services; 2 GPUs as before" in result.stdout


def test_a_refused_change_keeps_the_fleet_and_says_why(tmp_path: Path) -> None:
    refused = service(hardware={"gpu": "NVIDIA-L4", "maxGPUs": 1}, model={"id": "Qwen/Qwen3-32B"})
    result = diff(tmp_path, written(service()), written(refused))
    assert result.exit_code == 1
    assert "the previous fleet keeps running" in result.stdout
    assert "refused: " in result.stdout


def test_cost_is_money_with_a_price_and_memory_without(tmp_path: Path) -> None:
    old, new = written(service()), written(service(scaling={"minReplicas": 3}))
    priced = only_service(diff(tmp_path, old, new, "-o", "json", "--price", f"{H100}=2.5"))
    assert priced["cost"] == {"unit": "per hour", "before": 2.5, "after": 7.5}
    plain = only_service(diff(tmp_path, old, new, "-o", "json"))
    assert plain["cost"]["unit"] == "GiB of GPU memory"
    assert plain["cost"]["after"] == pytest.approx(3 * plain["cost"]["before"], rel=1e-3)


def test_markdown_is_a_comment_with_a_mark_and_safe_cells(tmp_path: Path) -> None:
    new = service(engine={"extraArgs": ["--tool-call-parser=a|b`c"]})
    lines = diff(tmp_path, written(service()), written(new), "-o", "markdown").stdout.splitlines()
    assert lines[0] == "<!-- plimsoll-diff -->"
    assert lines[1].startswith("**Plimsoll:** 1 changed of 1 service")
    rows = [line for line in lines if line.startswith("| ")]
    assert rows
    assert all(row.replace("\\|", "").count("|") == 4 for row in rows)


def test_a_revision_of_a_folder_is_piped_in_as_an_archive(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(written(service(contextTokens=16384)))
    piped = io.BytesIO()
    with tarfile.open(fileobj=piped, mode="w") as archive:
        text = written(service()).encode()
        header = tarfile.TarInfo("deploy/a.yaml")
        header.size = len(text)
        archive.addfile(header, io.BytesIO(text))
    result = CliRunner().invoke(app, ["diff", "-", str(tmp_path), "-o", "json"], input=piped.getvalue())
    assert result.exit_code == 1
    assert only_service(result)["service"] == "llm/docs"


def test_an_empty_old_side_is_a_new_file(tmp_path: Path) -> None:
    result = diff(tmp_path, "", written(service()))
    assert result.exit_code == 1
    assert "llm/docs: added" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["-", "-"], "only one of the two sides", id="stdin twice"),
        pytest.param(["/nowhere", "-"], "/nowhere: No such file", id="no such file"),
        pytest.param(["-", "-", "--price", "L40S"], "GPU=PRICE", id="a price without a figure"),
        pytest.param(["-", "-", "--price", "L40S=nan"], "GPU=PRICE", id="a price that is no number"),
        pytest.param(["-", "-", "--price", "H10=1"], "nearest: ", id="a price of no known GPU"),
    ],
)
def test_bad_input_is_exit_2(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["diff", *arguments], input=written(service()))
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(("old", "new"), [("{", written(service())), (written(service()), "{")])
def test_a_side_that_cannot_be_read_compares_nothing(tmp_path: Path, old: str, new: str) -> None:
    result = diff(tmp_path, old, new)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "not YAML" in result.stderr
    assert "not compared, since not all of" in result.stderr
    assert "llm/docs" in result.stderr


def test_what_may_stand_in_an_unreadable_document_is_not_called_removed(tmp_path: Path) -> None:
    old = written(service("docs"), service("chat"))
    result = diff(tmp_path, old, f"{written(service('docs', contextTokens=1024))}---\n{{\n")
    assert result.exit_code == 2
    assert "llm/docs: changed" in result.stdout
    assert "llm/chat" not in result.stdout
    assert "not compared" in result.stderr


def test_a_model_configuration_replaces_the_catalogues_on_both_sides(tmp_path: Path) -> None:
    known = bundled_config("Qwen/Qwen3-8B")
    assert known is not None
    (tmp_path / "config.json").write_text(json.dumps(known.config))
    mine: dict[str, Any] = {"model": {"id": "acme/tuned"}}
    old, new = written(service(**mine)), written(service(**mine, contextTokens=1024))
    result = diff(tmp_path, old, new, "-o", "json", "--model-config", str(tmp_path / "config.json"))
    assert only_service(result)["restarts"].startswith("1 pod replaced")


def test_a_bad_document_does_not_hide_the_rest(tmp_path: Path) -> None:
    result = diff(tmp_path, written(service()), f"{written(service(contextTokens=1024))}---\n{{\n")
    assert result.exit_code == 2
    assert "not YAML" in result.stderr
    assert "llm/docs: changed" in result.stdout


def test_one_name_twice_on_a_side_is_said(tmp_path: Path) -> None:
    result = diff(tmp_path, written(service()), written(service(), service(contextTokens=1024)))
    assert result.exit_code == 2
    assert "llm/docs: there are two services of this name" in result.stderr
