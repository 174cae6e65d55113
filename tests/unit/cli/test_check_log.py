"""``plimsoll check-log``: what happened, what was predicted, what to change; exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from plimsoll.cli.main import app

REFUSED = (Path(__file__).parents[2] / "data" / "logs" / "kv-too-small.log").read_text(encoding="utf-8")
SERVED = "INFO 11-29 1:1:1 [x]  version 0.32.0\nINFO:     Application startup complete.\n"


def run(text: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["check-log", "-", *options], input=text)


def test_a_refused_start_is_explained_with_prediction_and_change() -> None:
    result = run(REFUSED, "-o", "json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["outcome"], told["reason"], told["condition"]) == ("refused", "kv_cache_too_small", "KVCacheTooSmall")
    assert told["observed"]["estimatedMaxModelLen"] == 32560
    assert told["arguments"] == {"max_model_len": 40960, "enforce_eager": True}
    # Its pool through our own layout: the same refusal, the same length within the log's two decimals.
    assert told["predicted"]["outcome"] == "refused"
    assert abs(told["predicted"]["estimatedMaxModelLen"] - 32560) <= 48
    assert "32560" in told["change"][0]


def test_the_product_makes_a_prediction_of_memory() -> None:
    told = json.loads(run(REFUSED, "-o", "json", "--gpu", "NVIDIA-H100-80GB-HBM3").stdout)
    assert told["predicted"]["outcome"] == "starts"
    assert told["predicted"]["availableKVBytes"]["low"] > 40 << 30


def test_people_read_it_too() -> None:
    text = run(REFUSED).stdout
    assert "vLLM 0.32.0, Qwen/Qwen3-8B: it did not start" in text
    assert "KVCacheTooSmall" in text
    assert "available kv: 4.47 GiB" in text
    assert "what to change:" in text


def test_a_start_that_went_well_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "start.log"
    path.write_text(SERVED, encoding="utf-8")
    result = CliRunner().invoke(app, ["check-log", str(path), "-o", "json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["outcome"] == "started"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["check-log", "/no/such.log"], "cannot be read"), (["check-log", "-"], "nothing in it is from a vLLM engine")],
)
def test_what_is_no_log_is_bad_input(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, arguments, input="hello\n")
    assert result.exit_code == 2
    assert says in result.stderr
