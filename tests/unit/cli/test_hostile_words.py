"""Words of a spec, a log or a cluster are shown, and do nothing: to a terminal, a browser, a pull request, a format."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from plimsoll.cli.main import app
from tests.unit.cli.services import service

HOSTILE = "\x1b]0;owned\x07<script>alert(1)</script>`|{0}%s{x.__class__}$(HF_TOKEN)\u009b31m"
SERVICES: dict[str, dict[str, Any]] = {
    "an argument": service(engine={"extraArgs": ["--chat-template", HOSTILE]}),
    "a flag": service(engine={"extraArgs": [f"--{HOSTILE}"]}),
    "a value of a choice": service(mode=HOSTILE),
    "an annotation": service(podTemplate={"metadata": {"annotations": {"a": HOSTILE}}}),
    "a variable": service(podTemplate={"spec": {"env": [{"name": "VLLM_USE_V1", "value": HOSTILE}]}}),
    "a key": {**service(), HOSTILE: 1},
}


def _answered(arguments: list[str], document: object = None) -> str:
    result = CliRunner().invoke(app, arguments, input=yaml.safe_dump(document))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return str(result.stdout + result.stderr)


@pytest.mark.parametrize("where", SERVICES)
def test_a_manifest_does_not_steer_the_terminal(where: str) -> None:
    for output in ("table", "json", "yaml"):
        said = _answered(["plan", "-", "-o", output], SERVICES[where])
        assert "\x1b]" not in said
        assert not {"\x07", "\u009b"} & set(said)


def test_a_report_holds_no_script_of_a_spec(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    _answered(["plan", "-", "--html", str(file)], SERVICES["an argument"])
    page = file.read_text(encoding="utf-8")
    assert "alert(1)" in page
    assert "<script>alert" not in page


def test_a_review_keeps_its_table(tmp_path: Path) -> None:
    """Each value stands in one cell, as code."""
    before = tmp_path / "before.yaml"
    before.write_text(yaml.safe_dump(service()), encoding="utf-8")
    said = _answered(["diff", str(before), "-", "-o", "markdown"], SERVICES["an argument"])
    rows = [line for line in said.splitlines() if "alert(1)" in line]
    assert rows
    for row in rows:
        assert row.replace("\\|", "").count("|") == 4
        assert row.count("`") % 2 == 0


@pytest.mark.parametrize(
    "end", ["ValueError: ", "RuntimeError: CUDA out of memory ", "error: unrecognized arguments: "]
)
def test_a_log_does_not_steer_the_terminal(tmp_path: Path, end: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"INFO 01-01 00:00:00 [api.py:1] version 0.32.0\n{end}{HOSTILE}\n", encoding="utf-8")
    said = _answered(["check-log", str(log)])
    assert "alert(1)" in said
    assert not {"\x1b", "\x07", "\u009b"} & set(said)


WORKLOAD: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "vllm", "namespace": "llm"},
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "vllm",
                        "image": "vllm/vllm-openai:v0.32.0",
                        "args": [
                            "Qwen/Qwen3-8B",
                            "--max-model-len",
                            "8192",
                            "--chat-template",
                            HOSTILE,
                            f"--{HOSTILE}",
                        ],
                        "env": [{"name": "VLLM_USE_V1", "value": HOSTILE}],
                    }
                ]
            }
        }
    },
}


@pytest.mark.parametrize("command", ["audit", "import"])
@pytest.mark.parametrize("output", ["table", "json"])
def test_what_people_run_does_not_steer_the_terminal(command: str, output: str) -> None:
    said = _answered([command, "-", "-o", output], WORKLOAD)
    assert said
    assert "\x1b]" not in said
    assert not {"\x07", "\u009b"} & set(said)
