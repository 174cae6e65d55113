"""``plimsoll plan`` as a command: forms, exit codes, bad input beside good, the kubectl plugin, start-up imports."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from plimsoll.cli.kubectl import app as kubectl_app
from plimsoll.cli.main import COMMANDS, app
from tests.unit.cli.services import H100, service, written

TOO_LARGE = service("too-large", model={"id": "Qwen/Qwen3-32B"}, hardware={"gpu": "NVIDIA-L4", "maxGPUs": 1})


def plan(text: str | bytes, *options: str) -> Result:
    result = CliRunner().invoke(app, ["plan", "-", *options], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_json_is_one_object_for_one_service_and_a_list_for_several() -> None:
    one = plan(written(service()), "-o", "json")
    assert one.exit_code == 0
    assert json.loads(one.stdout)["service"] == "llm/docs"
    two = plan(written(service("a"), service("b")), "-o", "json")
    assert [found["service"] for found in json.loads(two.stdout)] == ["llm/a", "llm/b"]


def test_yaml_says_what_json_says() -> None:
    text = written(service())
    as_yaml, as_json = yaml.safe_load(plan(text, "-o", "yaml").stdout), json.loads(plan(text, "-o", "json").stdout)
    for each in (as_yaml, as_json):
        each.pop("planningMs")
    assert as_yaml == as_json


def test_the_table_has_the_figures_of_the_plan() -> None:
    found = json.loads(plan(written(service()), "-o", "json").stdout)
    table = plan(written(service())).stdout
    assert table.startswith("llm/docs: feasible\n")
    assert shlex.join(["vllm", "serve", "Qwen/Qwen3-8B", *found["choice"]["args"]]) in table
    assert f"{found['latency']['ttftMs']['mid']:,.0f} ms" in table
    assert f"{found['kv']['tokens']:,}" in table
    assert all(item["item"] in table and item["basis"] in table for item in found["memory"])


def test_infeasible_is_exit_1_with_the_arithmetic_and_what_would_fit() -> None:
    result = plan(written(service("good"), TOO_LARGE))
    assert result.exit_code == 1
    assert "llm/good: feasible" in result.stdout
    assert "llm/too-large: not feasible" in result.stdout
    assert "GiB" in result.stdout
    assert "Tried and not chosen" in result.stdout


def test_a_quality_gate_that_the_owner_does_not_allow_is_told_and_holds_up_no_plan(tmp_path: Path) -> None:
    identity = {"podTemplate": {"spec": {"serviceAccountName": "evals"}}}
    text = written(service(tuning={"mode": "Auto", "allow": ["KVCacheDtype"], "qualityGate": identity}))
    result = plan(text)
    assert result.exit_code == 0
    where = "spec.tuning.qualityGate.podTemplate.spec.serviceAccountName"
    assert f"fp8 KV is never tried, since its quality gate may not run: {where}: evals" in result.stdout
    assert where in json.loads(plan(text, "-o", "json").stdout)["assumptions"][-1]
    policy = tmp_path / "policy.yaml"
    policy.write_text("allow: {serviceAccounts: [evals]}\n", encoding="utf-8")
    assert "quality gate" not in plan(text, "--pod-policy", str(policy)).stdout


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        pytest.param("a: [1,\nb: 2}\n", "stdin:14: not YAML", id="the line of a YAML error"),
        pytest.param("- 1\n", "a list, not a Kubernetes object", id="not an object"),
        pytest.param("spec: {}\n", "no kind", id="no kind"),
        pytest.param(written(service(contextTokens="many")), "stdin:23: spec.contextTokens: 'many'", id="a wrong type"),
        pytest.param(written(service(contextToken=1)), "stdin:24: spec.contextToken: 1", id="the line of a field"),
        pytest.param(written(service(contextToken=1)), "did you mean contextTokens?", id="a misspelt field"),
        pytest.param(written(service()) + "spec: {}\n", "stdin:24: spec: stands here and at line 18", id="a key twice"),
        pytest.param(
            json.dumps({"kind": "List", "items": [service("x"), service("y", replicas=-1)]}, indent=1) + "\n",
            "stdin:48: spec.replicas: -1: must be at least 0",
            id="an item of a list",
        ),
    ],
)
def test_a_bad_document_is_exit_2_and_the_good_ones_are_planned(bad: str, said: str) -> None:
    good = written(service())
    assert good.count("\n") == 11
    result = plan(f"{good}---\n{bad}---\n{written(service('last'))}", "-o", "json")
    assert result.exit_code == 2
    planned = [found["service"] for found in json.loads(result.stdout)]
    assert (planned[0], planned[-1]) == ("llm/docs", "llm/last")
    assert said in result.stderr


def test_merged_keys_may_be_overridden() -> None:
    text = written(service()).replace("spec:\n", "spec:\n  <<: {contextTokens: 1, replicas: 2}\n")
    result = plan(text, "-o", "json")
    assert result.exit_code == 0
    assert "--max-model-len" in result.stdout


def test_other_kinds_are_nobody_s_business() -> None:
    assert plan(f"kind: Deployment\nspec: 1\nspec: 2\n---\n{written(service())}").exit_code == 0


@pytest.mark.parametrize(
    ("spec", "nearest"),
    [
        pytest.param({"model": {"id": "Qwen/Qwen3-8"}}, "Qwen/Qwen3-8B", id="model"),
        pytest.param({"hardware": {"gpu": "NVIDIA-H10-80GB-HBM3"}}, H100, id="GPU"),
    ],
)
def test_an_unknown_name_comes_with_the_nearest(spec: dict[str, Any], nearest: str) -> None:
    result = plan(written(service(**spec)))
    assert result.exit_code == 1
    assert nearest in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["plan", "/nowhere.yaml"], "/nowhere.yaml: No such file", id="no such file"),
        pytest.param(["plan", "a\0b"], "not a path", id="not a path"),
        pytest.param(["plan", "-", "--model-config", "/nowhere.json"], "--model-config: /nowhere.json", id="config"),
        pytest.param(["plan", "-", "--html", "/nowhere/r.html"], "--html: /nowhere/r.html", id="report"),
        pytest.param(["plan", "-", "-o", "xml"], "'xml' is not one of", id="form"),
    ],
)
def test_what_cannot_be_read_or_written_is_exit_2_and_named(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, arguments, input=written(service()))
    assert result.exit_code == 2
    assert said in result.stderr


def test_nothing_to_plan_is_exit_2() -> None:
    assert plan("kind: Deployment\n").exit_code == 2
    assert plan("").exit_code == 2


def test_a_folder_is_planned_whole(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.yaml").write_text(written(service("a")))
    (tmp_path / "sub" / "b.json").write_text(json.dumps(service("b")))
    (tmp_path / "notes.txt").write_text("not for us")
    result = CliRunner().invoke(app, ["plan", str(tmp_path), "-o", "json"])
    assert [found["service"] for found in json.loads(result.stdout)] == ["llm/a", "llm/b"]


def test_prices_decide_between_products() -> None:
    text = written(service(hardware={"gpus": ["NVIDIA-L40S", H100]}))
    for dear, cheap in (("NVIDIA-L40S", H100), (H100, "NVIDIA-L40S")):
        found = json.loads(plan(text, "-o", "json", "--price", f"{dear}=9", "--price", f"{cheap}=0.1").stdout)
        assert found["choice"]["gpu"] == cheap


def test_html_stands_alone(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert plan(written(service(), TOO_LARGE), "--html", str(page)).exit_code == 1
    text = page.read_text(encoding="utf-8")
    assert text.count('role="img"') == 4
    assert not any(mark in text for mark in (" src=", "http://", "https://", "@import", "<script", "<link"))


def test_html_shows_markup_as_text(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "llm"},
        "data": {"config.json": '{"model_type": "<img src=x onerror=alert(1)>"}'},
    }
    refused = service(model={"id": "/models/x", "configRef": {"name": "c"}})
    assert plan(written(config_map, refused), "--html", str(page)).exit_code == 1
    text = page.read_text(encoding="utf-8")
    assert "&lt;img" in text
    assert "<img" not in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_teaches(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_help_lists_every_command_and_the_exit_codes() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    assert all(f"  {name} " in text for name in COMMANDS)
    assert "3 something needed was" in text


def test_a_misspelt_command_is_exit_2_with_the_nearest() -> None:
    result = CliRunner().invoke(app, ["plna"])
    assert result.exit_code == 2
    assert "Did you mean 'plan'?" in result.stderr


def test_the_kubectl_plugin_has_plan_diff_and_explain_only() -> None:
    text = CliRunner().invoke(kubectl_app, ["--help"]).stdout
    assert "kubectl vllm plan" in text
    assert CliRunner().invoke(kubectl_app, ["plan", "-"], input=written(service())).exit_code == 0
    assert CliRunner().invoke(kubectl_app, ["crd"]).exit_code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_commands(shell: str) -> None:
    complete = {"bash": "COMP_WORDS", "zsh": "_TYPER_COMPLETE_ARGS", "fish": "_TYPER_COMPLETE_ARGS"}[shell]
    environment = {"_PLIMSOLL_COMPLETE": f"complete_{shell}", complete: "plimsoll pl", "COMP_CWORD": "1"}
    environment |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"} if shell == "fish" else {}
    result = CliRunner().invoke(app, [], env=environment, prog_name="plimsoll")
    assert "plan" in result.stdout
    assert "explain" not in result.stdout


def test_plan_loads_neither_a_cluster_client_nor_rich() -> None:
    program = (
        "import sys; from plimsoll.cli.main import app\n"
        "try: app(['plan', '-'])\n"
        "except SystemExit: pass\n"
        "heavy = {'kubernetes', 'kopf', 'aiohttp', 'rich', 'prometheus_api_client', 'plimsoll.api.schema'}\n"
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=written(service()), capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_an_inventory_sets_prices_nodes_and_budgets(tmp_path: Path) -> None:
    products = ["NVIDIA-L40S", H100]
    (tmp_path / "service.yaml").write_text(written(service(hardware={"gpus": products})))
    (tmp_path / "inventory.yaml").write_text(f"products: {{NVIDIA-L40S: {{price: 3}}, {H100}: {{price: 2}}}}")
    asked = ["plan", str(tmp_path / "service.yaml"), "-o", "json"]
    chosen = json.loads(CliRunner().invoke(app, asked).stdout)["choice"]["gpu"]
    options = ["--inventory", str(tmp_path / "inventory.yaml")]
    priced = json.loads(CliRunner().invoke(app, [*asked, *options]).stdout)["choice"]["gpu"]
    single = json.loads(CliRunner().invoke(app, [*asked, *options, "--price", f"{H100}=4"]).stdout)["choice"]["gpu"]
    assert (chosen, priced, single) == ("NVIDIA-L40S", H100, "NVIDIA-L40S")


def test_an_inventory_that_cannot_be_used_is_exit_2(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(written(service()))
    (tmp_path / "inventory.yaml").write_text("products: {L4: {prize: 3}}")
    asked = ["plan", str(tmp_path / "service.yaml"), "--inventory", str(tmp_path / "inventory.yaml")]
    result = CliRunner().invoke(app, asked)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "inventory.yaml: products.L4.prize: 3: unknown field" in result.stderr


def test_a_time_of_day_without_quotes_is_text_as_it_is_to_kubectl(tmp_path: Path) -> None:
    manifest = written(service())
    window = "  tuning:\n    freeze:\n      - {timeZone: Etc/UTC, from: 09:30, to: 18:00}\n"
    path = tmp_path / "service.yaml"
    path.write_text(manifest.replace("spec:\n", f"spec:\n{window}", 1))
    result = CliRunner().invoke(app, ["plan", str(path)])
    assert result.exit_code == 0, result.output
