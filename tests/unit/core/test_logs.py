"""Engine logs of ten releases, and the words of torch, NCCL and the hub, come out as the right cause and figures."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import engine_reasons, reasons
from plimsoll.core.advice import changes
from plimsoll.core.causes import CAUSES, UNEXPLAINED
from plimsoll.core.logs import read_log

DATA = Path(__file__).parents[2] / "data" / "logs"
WORDS = [json.loads(line) for line in (DATA / "words.jsonl").read_text(encoding="utf-8").splitlines()]
GIB = 1 << 30


def _recorded() -> list[dict[str, Any]]:
    with gzip.open(DATA / "engine-logs.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


EXPECTED = {
    "kv_too_small_for_max_model_len": "kv_cache_too_small",
    "kv_too_small_hybrid": "kv_cache_too_small",
    "unknown_flag": "bad_flag",
    "bad_value_parse": "bad_flag",
    "bad_value_range": "bad_flag",
    "max_model_len_above_model": "max_model_len_above_model",
    "tp_not_dividing_heads": "heads_not_divisible",
    "missing_model_dir": "weights_missing",
    "start": None,
}
RECORDED = [row for row in _recorded() if row["case"] in EXPECTED]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"{row['version']} {row['case']}")
@pytest.mark.parametrize("first", ["stdout", "stderr"])
def test_recorded_logs_name_their_cause_whichever_stream_comes_first(row: dict[str, Any], first: str) -> None:
    second = "stderr" if first == "stdout" else "stdout"
    log = read_log("\n".join([*row[first], *row[second]]))
    assert (log.failure.cause.word if log.failure else None) == EXPECTED[row["case"]]
    if row["case"] == "start":
        assert log.ready
        assert log.version == row["version"]
        assert log.arguments["max_model_len"] == 2048
        assert log.figures["max_concurrency"] > 1


@pytest.mark.parametrize(
    "row", [r for r in RECORDED if r["case"].startswith("kv_too_small")], ids=lambda r: r["version"]
)
def test_a_pool_that_is_too_small_gives_its_figures(row: dict[str, Any]) -> None:
    failure = read_log("\n".join(row["stdout"])).failure
    assert failure is not None
    assert failure.figures["max_model_len"] > failure.figures["estimated_max_model_len"] > 0
    assert failure.figures["needed_bytes"] >= failure.figures["available_bytes"] >= 0
    assert f"at most {failure.figures['estimated_max_model_len']}" in changes(failure)[0]


def test_an_engine_that_was_stopped_did_not_fail_whatever_its_parts_complain_of_afterwards() -> None:
    stopped = [row for row in _recorded() if str(row["exit_code"]).startswith("started")]
    assert stopped
    for row in stopped:
        log = read_log("\n".join([*row["stdout"], *row["stderr"]]))
        assert (log.failure, log.ready) == (None, True), row["version"]


BANNER = "(APIServer pid=1) INFO 11-29 18:00:15 [api_utils.py:286] non-default args: {'model': 'acme/nine'}\n"
CORE = "(EngineCore pid=96) ERROR 11-29 18:00:15 [core.py:1510] "
ECHO = (
    "Traceback (most recent call last):\n"
    '  File "SITE_PACKAGES/vllm/v1/engine/utils.py", line 960, in wait_for_engine_startup\n'
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}\n"
)


@pytest.mark.parametrize("row", WORDS, ids=lambda row: f"{row['cause']}: {row['said'][:40]}")
def test_other_causes_by_their_words(row: dict[str, Any]) -> None:
    log = read_log(BANNER + "".join(f"{CORE}{line}\n" for line in row["said"].splitlines()) + ECHO)
    assert log.failure is not None
    assert log.failure.cause.word == row["cause"]
    found = {name: log.failure.figures[name] for name in row["figures"]}
    wanted = {name: round(v * GIB) if name.endswith("_bytes") else v for name, v in row["figures"].items()}
    assert found == wanted


@pytest.mark.parametrize(
    "before",
    [
        "\x1b[1;36m(EngineCore_DP0 pid=28367)\x1b[0;0m ERROR 11-29 18:29:21 [core.py:843] ",
        "(Worker_TP0 pid=31) ERROR 11-29 18:29:21 [multiproc_executor.py:843] ",
        "2026-11-29T18:29:21.123456789Z (EngineCore pid=3) ERROR 11-29 18:29:21 [core.py:1510] ",
        "[pod/svc-6d5f-x2/vllm] ERROR 11-29 18:29:21 [core.py:843] ",
        "vllm-1  | (EngineCore_DP0 pid=96) ERROR 11-29 18:29:21 [core.py:843] ",
        "",
    ],
)
def test_what_stands_before_a_line_does_not_matter(before: str) -> None:
    log = read_log(f"{before}ValueError: too many values to unpack (expected 2)\n")
    assert log.failure is not None
    assert log.failure.said == "ValueError: too many values to unpack (expected 2)"


def test_a_line_that_the_engine_did_not_mean_as_a_fault_is_none() -> None:
    hint = "(EngineCore pid=3) INFO 11-29 18:29:21 [x.py:1] If you see CUDA out of memory, lower max_num_seqs\n"
    assert read_log(hint).failure is None


def test_an_error_of_one_request_is_no_death_of_the_engine() -> None:
    served = (
        "INFO:     Application startup complete.\nValueError: This model's maximum context length is 8192 tokens.\n"
    )
    assert read_log(served).failure is None
    died = read_log(served + f"{CORE}EngineCore encountered a fatal error.\n")
    assert died.failure is not None
    assert died.ready


def test_the_worst_worker_counts() -> None:
    lines = [
        f"(Worker_TP{rank} pid=1) INFO 11-29 1:1:1 [x] Available KV cache memory: {g} GiB"
        for rank, g in ((0, 7.24), (1, 5.63))
    ]
    assert read_log("\n".join(lines)).figures["available_kv_bytes"] == round(5.63 * GIB)


def test_the_engines_own_line_stands_in_for_arguments_the_server_did_not_print() -> None:
    line = (
        "INFO 11-29 17:59:45 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='acme/nine', "
        "dtype=torch.bfloat16, max_seq_len=2048, tensor_parallel_size=2, quantization=None, enforce_eager=True"
    )
    log = read_log(line)
    assert (log.version, log.model) == ("0.32.0", "acme/nine")
    assert log.arguments == {"max_model_len": 2048, "tensor_parallel_size": 2, "enforce_eager": True}


@given(st.text(max_size=400), st.sampled_from([CORE, BANNER, ECHO, ""]))
def test_any_text_can_be_read(text: str, around: str) -> None:
    log = read_log(around + text)
    assert log.failure is None or log.failure.said is not None


def test_every_cause_has_a_reason_that_users_can_look_up() -> None:
    words = {cause.word for cause in (*CAUSES, UNEXPLAINED)}
    assert all(reasons.camel_reason(word) in reasons.REASONS for word in words)
    assert {reason.name for reason in engine_reasons.REASONS.values()} <= {reasons.camel_reason(word) for word in words}
