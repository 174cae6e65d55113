"""``plimsoll simulate`` as its user meets it."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plimsoll.cli.main import app

SERVICE = str(Path(__file__).parents[3] / "examples/qwen3.5-9b.yaml")
ENGINE = ["--engine", "rtx4090-llama-3.1-8b"]
SHORT = ["--trace", "poisson", "--end", "300", "--cold-start", "30"]
KEYS = {
    "policy", "trace", "router", "requests", "unfinished", "rejected", "gpuHours", "sloAttainment", "ttftP50",
    "ttftP99", "tpotP50", "tpotP99", "preemptionsPer1000", "scaleEvents", "maxReplicas", "burstRecoverySeconds",
    "wallSeconds", "requestsPerWallSecond",
}  # fmt: skip


def run(*args: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["simulate", *args, "-o", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else result.stderr


def test_a_result_has_the_contracts_names() -> None:
    result = run(*ENGINE, *SHORT)
    assert result.keys() == KEYS
    assert result["requests"] > 1000
    assert 0.5 < result["sloAttainment"] <= 1


def test_the_same_seed_gives_the_same_result() -> None:
    fixed = KEYS - {"wallSeconds", "requestsPerWallSecond"}
    first, second = (run(*ENGINE, *SHORT, "--router", "connection-random", "--seed", "4") for _ in range(2))
    assert {key: first[key] for key in fixed} == {key: second[key] for key in fixed}


def test_a_service_is_simulated_with_its_own_plan() -> None:
    result = run("--service", SERVICE, *SHORT)
    assert result["sloAttainment"] == 1.0
    assert result["maxReplicas"] == 2


@pytest.mark.parametrize(
    "policy", ["hpa-kv:0.6", "keda-waiting", "knative", "aibrix-apa", "wva-v1", "wva-v2", "static:3", "clairvoyant:0.9"]
)
def test_every_policy_can_be_asked_for(policy: str) -> None:
    assert run(*ENGINE, *SHORT, "--policy", policy)["policy"] == policy


def test_more_replicas_than_needed_cost_more() -> None:
    two, eight = (run(*ENGINE, *SHORT, "--policy", f"static:{n}")["gpuHours"] for n in (2, 8))
    assert eight > 2 * two


def test_the_best_fixed_number_is_the_smallest_that_reaches_the_share_asked_for() -> None:
    best = run(*ENGINE, *SHORT, "--policy", "best-static:99")
    below = run(*ENGINE, *SHORT, "--policy", f"static:{best['maxReplicas'] - 1}")
    assert best["sloAttainment"] >= 0.99 > below["sloAttainment"]


def test_a_page_shows_the_history_and_needs_nothing_beside_itself(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    result = run(*ENGINE, *SHORT, "--html", str(path))
    page = path.read_text()
    assert page.count("<svg") == 3
    assert str(result["requests"]) in page
    assert "http" not in page


def test_a_burst_in_the_trace_is_found_and_its_recovery_told() -> None:
    fast, slow = (
        run(*ENGINE, "--trace", "burst", "--start", "1800", "--end", "4800", "--cold-start", str(seconds))
        for seconds in (10, 300)
    )
    assert 0 <= fast["burstRecoverySeconds"] < 300 <= slow["burstRecoverySeconds"]
    assert run(*ENGINE, *SHORT)["burstRecoverySeconds"] is None


def test_a_timeline_has_a_row_a_scrape(tmp_path: Path) -> None:
    path = tmp_path / "timeline.csv"
    run(*ENGINE, *SHORT, "--scrape", "10", "--timeline", str(path))
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["seconds"]) for row in rows[:3]] == [10.0, 20.0, 30.0]
    assert all(0 <= float(row["kv_use"]) <= 1 for row in rows)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param(["--trace", "burst"], "exactly one", id="neither service nor engine"),
        pytest.param(["--engine", "h200", "--trace", "burst"], "rtx4090", id="unknown engine"),
        pytest.param([*ENGINE, "--trace", "nothing.csv"], "built-in", id="no such trace"),
        pytest.param([*ENGINE, "--trace", "burst", "--policy", "magic"], "plimsoll, clairvoyant", id="unknown policy"),
        pytest.param(
            [*ENGINE, "--trace", "burst", "--policy", "hpa-kv:x"], "target KV use", id="knob that is no number"
        ),
        pytest.param([*ENGINE, "--trace", "burst", "--router", "best"], "connection-random", id="unknown router"),
        pytest.param([*ENGINE, "--trace", "burst", "--slo", "ttft=2"], "ttft=2s", id="an SLO without units"),
        pytest.param([*ENGINE, "--trace", "burst", "--start", "9e9"], "no request", id="an empty part"),
    ],
)
def test_bad_input_names_option_value_and_what_is_allowed(args: list[str], says: str) -> None:
    assert says in run(*args, code=2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("a,b\n1,2\n", "arrival_s", id="other columns"),
        pytest.param("arrival_s,prompt_tokens,output_tokens\n", "no rows", id="no rows"),
        pytest.param("arrival_s,prompt_tokens,output_tokens\n1,x,3\n", "no number", id="a word for a number"),
    ],
)
def test_a_trace_that_cannot_be_read_says_why(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    assert says in run(*ENGINE, "--trace", str(path), code=2)


def test_an_infeasible_service_is_answered_with_no(tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text(Path(SERVICE).read_text().replace("131072", "999999"))
    assert "not feasible" in run("--service", str(path), *SHORT, code=1)
