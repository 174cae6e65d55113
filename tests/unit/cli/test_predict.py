"""``plimsoll predict`` as a command: order, streams, exit codes, lines that cannot be read."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from plimsoll.cli import predict as command

APP = typer.Typer()
APP.command(name="predict")(command.predict)


@APP.callback()
def _root() -> None:
    """Keep the command a sub-command."""


GOOD = {"id": "good", "model": "Qwen/Qwen3-8B", "gpu": "NVIDIA-H100-80GB-HBM3"}


def run(text: bytes) -> tuple[int, list[dict[str, object]], str]:
    result = CliRunner().invoke(APP, ["predict", "-"], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def lines(*rows: object) -> bytes:
    return b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows)


def test_one_answer_a_line_in_order() -> None:
    code, found, _ = run(lines(*({**GOOD, "id": number} for number in range(5))))
    assert code == 0
    assert [row["id"] for row in found] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b"{not json\n", id="not JSON"),
        pytest.param(b"\xff\xfe\n", id="not UTF-8"),
        pytest.param(b'{"id": NaN, "model": "x"}\n', id="not a number"),
        pytest.param(b"[" * 100_000 + b"\n", id="nested without end"),
        pytest.param(b'{"id": ' + b"9" * 5000 + b"}\n", id="a number without end"),
        pytest.param(b'"text"\n', id="not an object"),
    ],
)
def test_a_bad_line_does_not_stop_the_others(bad: bytes) -> None:
    code, found, stderr = run(lines(GOOD, bad, {**GOOD, "id": "after"}))
    assert code == 2
    assert [row["outcome"] for row in found] == ["starts", "unknown", "starts"]
    assert found[1]["reason"] == "bad_row"
    assert "1 bad row" in stderr


def test_a_refusal_is_an_answer_not_an_error() -> None:
    code, found, _ = run(lines({**GOOD, "flags": {"tensor_parallel_size": 3}}))
    assert code == 0
    assert found[0]["reason"] == "heads_not_divisible"


def test_blank_lines_and_a_last_line_without_end() -> None:
    code, found, _ = run(b"\n  \n" + json.dumps(GOOD).encode())
    assert (code, len(found)) == (0, 1)


def test_a_line_without_end_is_skipped_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LONGEST_LINE", 64)
    stream = io.BytesIO(b"x" * 1000 + b"\nshort\n")
    assert list(command.read_lines(stream)) == [None, b"short\n"]


def test_a_file_and_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(lines({"config": "c.json", "gpu": "NVIDIA-L4"}))
    (tmp_path / "c.json").write_text("[]", encoding="utf-8")
    result = CliRunner().invoke(APP, ["predict", str(tmp_path / "rows.jsonl")])
    assert result.exit_code == 2
    assert "holds a list" in result.stdout


def test_a_file_that_is_not_there() -> None:
    result = CliRunner().invoke(APP, ["predict", "/nowhere/rows.jsonl"])
    assert result.exit_code == 2
    assert "/nowhere/rows.jsonl: cannot be read" in result.stderr


def test_answers_come_while_rows_are_still_written() -> None:
    program = "import typer, plimsoll.cli.predict as p; app = typer.Typer(); app.command()(p.predict); app()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines(GOOD))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == "good"
        process.stdin.close()
        assert process.wait(timeout=60) == 0
