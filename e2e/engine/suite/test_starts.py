"""What the engine does with each tiny model and each flag that moves memory is what `plimsoll predict` says."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.engine.cases import Case, cases
from e2e.engine.install import VERSION
from e2e.engine.models import MODELS
from e2e.engine.starts import Outcome, Starts
from e2e.engine.tally import Tally
from plimsoll.core.logs import read_log

Prediction = Mapping[str, Any]
CASES = list(cases())
PRINTED_DIGITS = 6


@pytest.fixture(scope="module")
def predictions() -> Mapping[str, Prediction]:
    """Of the command itself, all cases at once."""
    rows = "".join(json.dumps(_row(case)) + "\n" for case in CASES)
    command = [str(Path(sys.executable).with_name("plimsoll")), "predict", "-"]
    done = subprocess.run(command, input=rows, capture_output=True, text=True, check=True)
    return {found["id"]: found for found in map(json.loads, done.stdout.splitlines())}


def _row(case: Case) -> dict[str, Any]:
    config = MODELS[case.model]
    return {"id": case.id, "config": config, "gpu": "cpu", "engine_version": VERSION, "flags": dict(case.flags)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_start_is_as_predicted(
    case: Case, starts: Starts, predictions: Mapping[str, Prediction], tally: Tally
) -> None:
    outcome, predicted = starts.outcome(case), predictions[case.id]
    assert _said(outcome) == _foretold(predicted, outcome)
    tally.count("starts", "refused alike" if outcome.pool is None else "with the same pool")


def _said(outcome: Outcome) -> dict[str, Any]:
    """The engine's figures; of a refusal the reason and the length it suggests, as our own reading of logs has them."""
    if outcome.pool is None:
        failure = read_log(outcome.whole_log).failure
        assert failure is not None, outcome.whole_log
        return {"reason": failure.cause.word, "suggested": failure.figures.get("estimated_max_model_len")}
    keys = ("num_blocks", "block_size", "tokens", "allocated_bytes")
    concurrency = round(outcome.pool["max_concurrency"], PRINTED_DIGITS)
    return {**{key: outcome.pool[key] for key in keys}, "max_concurrency": concurrency}


def _foretold(predicted: Prediction, outcome: Outcome) -> dict[str, Any]:
    if predicted["outcome"] == "refused":
        return {"reason": predicted["reason"], "suggested": predicted["estimated_max_model_len"]}
    assert predicted["outcome"] == "starts", (predicted, outcome.error)
    return {
        "num_blocks": predicted["num_blocks"],
        "block_size": predicted["block_size"],
        "tokens": predicted["kv_cache_size_tokens"],
        "max_concurrency": predicted["max_concurrency"],
        "allocated_bytes": predicted["num_blocks"] * predicted["bytes_per_block"],
    }
