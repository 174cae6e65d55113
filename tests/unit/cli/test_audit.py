# ruff: noqa: E501 - a row of a table is one line
"""``plimsoll audit``: what is printed, which exit code, and that nothing broken hides the rest."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from plimsoll.cli.main import app
from plimsoll.core.audit.rule import RULES
from tests.unit.core.audit.deployments import deployment

GOOD = yaml.safe_dump(deployment())
BAD = yaml.safe_dump(deployment(args=["--shm-size=16G"]))
BOMB = "apiVersion: v1\nkind: Pod\na0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
WARNED = yaml.safe_dump(deployment(pod={"terminationGracePeriodSeconds": 10}))


def audit(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments], input=stdin, catch_exceptions=False)


def as_json(*arguments: str, stdin: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(audit(*arguments, "-o", "json", stdin=stdin).stdout)
    return found


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        pytest.param(GOOD, (), 0, id="nothing found"),
        pytest.param(BAD, (), 1, id="an error"),
        pytest.param(WARNED, (), 0, id="a warning is no error"),
        pytest.param(WARNED, ("--fail-on", "warning"), 1, id="unless it is asked for"),
        pytest.param(BAD, ("--fail-on", "never"), 0, id="never"),
        pytest.param(BAD, ("--ignore", "unknown-flag"), 0, id="a rule that is left out"),
        pytest.param(BAD, ("--ignore", "unkown-flag"), 2, id="a rule that does not exist"),
        pytest.param(GOOD, ("--gpu", "H1000000"), 2, id="a GPU that does not exist"),
        pytest.param("kind: Service\napiVersion: v1\n", (), 0, id="nothing of ours"),
        pytest.param(f"{GOOD}---\nkind: [\n", (), 2, id="something unreadable"),
    ],
)
def test_exit_code(text: str, options: tuple[str, ...], code: int) -> None:
    assert audit("-", *options, stdin=text).exit_code == code


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("kind: Pod\n\tspec: {}\n", ":2: not YAML: a tab", id="a tab"),
        pytest.param("kind: Pod\n<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> b\n", ":2: a merge-conflict marker", id="a conflict"),
        pytest.param("kind: Pod\nspec: {containers: [", ": not YAML: did not find", id="cut off"),
        pytest.param("kind: Pod\nspec: {{ .Values.spec }}\n", "a template", id="a template"),
        pytest.param("kubectl apply -f - <<EOF\nkind: Pod\n  a: 1\nEOF\n", "here-document", id="wrapped in a shell"),
        pytest.param("- vllm\n", "a list, not a Kubernetes object", id="a list"),
        pytest.param("piVersion: v1\nkind: Pod\n", "no apiVersion", id="a letter lost"),
        pytest.param("apiVersion: v1\nkind: Pod\nkind: Pod\n", "stands here and at line 2", id="a key twice"),
        pytest.param(BOMB, "aliases of aliases", id="aliases that stand for more than fits in memory"),
        pytest.param("kind: Pod\nspec: &a [*b]\n", "not YAML", id="an alias of nothing"),
    ],
)  # fmt: skip
def test_what_is_broken_is_one_line_and_hides_nothing(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "broken.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "good.yaml").write_text(BAD, encoding="utf-8")
    result = audit(str(tmp_path / "broken.yaml"), str(tmp_path / "good.yaml"))
    lines = [line for line in result.stderr.splitlines() if "broken.yaml" in line]
    assert len(lines) == 1
    assert said in lines[0]
    assert "--shm-size" in result.stdout
    assert result.exit_code == 2


def test_a_chart_in_the_folder_is_said_and_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "chart" / "templates").mkdir(parents=True)
    (tmp_path / "chart" / "Chart.yaml").write_text("name: c\n", encoding="utf-8")
    (tmp_path / "chart" / "templates" / "d.yaml").write_text(
        "kind: Deployment\nspec: {{ .Values.x }}\n", encoding="utf-8"
    )
    result = audit(str(tmp_path))
    assert "helm template" in result.stderr
    assert result.exit_code == 0


def test_a_finding_says_where_what_and_how() -> None:
    [finding] = as_json("-", stdin=f"# a comment\n{BAD}")["findings"]
    assert finding["id"] == "unknown-flag"
    assert (finding["severity"], finding["group"]) == ("error", "will not start")
    assert finding["object"] == {"kind": "Deployment", "namespace": "llm", "name": "qwen"}
    line = f"# a comment\n{BAD}".splitlines()[finding["line"] - 1]
    assert "--shm-size" in line
    assert finding["fix"]


def test_a_flag_in_a_script_has_a_line_of_its_own() -> None:
    script = "# --swap-space is gone\nexec vllm serve Qwen/Qwen3-8B \\\n  --max-model-len 8192 \\\n  --swap-space 16\n"
    manifest = deployment(container={"command": ["sh", "-c"], "args": ["SCRIPT"]})
    block = "|\n" + "".join(f"          {line}\n" for line in script.splitlines())
    text = yaml.safe_dump(manifest).replace("SCRIPT\n", block)
    [finding] = as_json("-", stdin=text)["findings"]
    assert finding["id"] == "removed-flag"
    assert text.splitlines()[finding["line"] - 1].strip() == "--swap-space 16"


def test_what_is_not_known_is_said() -> None:
    text = yaml.safe_dump(deployment(container={"args": ["acme/own-model", "--max-model-len", "8"]}))
    [server] = as_json("-", stdin=text)["servers"]
    assert server["kv"] is None
    assert any("--model-config or --hub" in each for each in server["unknown"])


def test_the_gpu_may_be_told() -> None:
    text = yaml.safe_dump(deployment(pod={"nodeSelector": None}))
    assert as_json("-", stdin=text)["servers"][0]["kv"] is None
    assert as_json("-", "--gpu", "L40S", stdin=text)["servers"][0]["kv"]["tokens"] > 0


def test_a_model_configuration_may_be_told(tmp_path: Path) -> None:
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28,
              "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
              "max_position_embeddings": 32768, "torch_dtype": "bfloat16"}  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    text = yaml.safe_dump(deployment(container={"args": ["/models/own", "--max-model-len", "8192"]}))
    assert as_json("-", "--model-config", str(path), stdin=text)["servers"][0]["kv"]["outcome"] == "starts"


def test_what_is_held_and_what_it_costs() -> None:
    limits = {"nvidia.com/gpu": 2, "memory": "32Gi"}
    text = yaml.safe_dump(deployment(container={"resources": {"limits": limits}}, spec={"replicas": 3}))
    found = as_json("-", "--price", "NVIDIA-H100-80GB-HBM3=2.5", stdin=text)
    assert (found["summary"]["gpus"], found["summary"]["idleGpus"]) == (6, 3)
    assert found["servers"][0]["costPerHour"] == 15.0
    assert (
        "6 GPUs, 15.00 per hour, 3 of them idle"
        in audit("-", "--price", "NVIDIA-H100-80GB-HBM3=2.5", stdin=text).stdout
    )
    assert as_json("-", stdin=text)["servers"][0]["costPerHour"] is None


def test_the_model_behind_an_operators_folder() -> None:
    spec = {"modelFormat": {"name": "vllm"}, "storageUri": "hf://Qwen/Qwen3-8B", "args": ["--model=/mnt/models"]}
    spec |= {"image": "vllm/vllm-openai:v0.32.0", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    service = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "q"}}
    text = yaml.safe_dump({**service, "spec": {"predictor": {"model": spec}}})
    [server] = as_json("-", "--gpu", "H100", stdin=text)["servers"]
    assert server["kv"]["outcome"] == "starts"
    assert any("taken for it" in each for each in server["unknown"])


def test_accepted_findings_are_not_heard_again(tmp_path: Path) -> None:
    baseline = tmp_path / "accepted.json"
    assert audit("-", "--save-baseline", str(baseline), stdin=BAD).exit_code == 0
    again = as_json("-", "--baseline", str(baseline), stdin=BAD)
    assert (again["findings"], again["summary"]["accepted"]) == ([], 1)
    worse = yaml.safe_dump(deployment(args=["--shm-size=16G"], pod={"terminationGracePeriodSeconds": 10}))
    assert [f["id"] for f in as_json("-", "--baseline", str(baseline), stdin=worse)["findings"]] == [
        "grace-too-short",
        "pre-stop-fills-grace",
    ]


def test_a_baseline_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("[]", encoding="utf-8")
    result = audit("-", "--baseline", str(tmp_path / "b.json"), stdin=GOOD)
    assert result.exit_code == 2
    assert "not a baseline" in result.stderr


def test_sarif_is_what_code_scanning_reads(tmp_path: Path) -> None:
    """The demands of the SARIF 2.1.0 schema on what we write, and those of code scanning beyond it."""
    (tmp_path / "with blank.yaml").write_text(BAD, encoding="utf-8")
    log = json.loads(audit(str(tmp_path), "-o", "sarif").stdout)
    assert (log["version"], log["$schema"].rsplit("/", 1)[1]) == ("2.1.0", "sarif-2.1.0.json")
    [run] = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        assert result["message"]["text"]
        [location] = result["locations"]
        assert location["physicalLocation"]["region"]["startLine"] >= 1
        assert " " not in location["physicalLocation"]["artifactLocation"]["uri"]
        assert result["partialFingerprints"]


def test_markdown_and_html(tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    result = audit("-", "-o", "markdown", "--html", str(page), stdin=yaml.safe_dump(deployment(args=["--a<b>|c"])))
    assert result.stdout.startswith("<!-- plimsoll-audit -->")
    assert "\\|c" in result.stdout
    text = page.read_text(encoding="utf-8")
    assert "--a&lt;b&gt;|c" in text
    assert "http://" not in text
