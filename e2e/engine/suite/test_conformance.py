"""The fake vLLM of the lab and a real one do the same: codes, exits, words, metrics."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from e2e.engine import journey, preloaded
from e2e.engine.install import VERSION
from e2e.engine.journey import CLOSED, Life
from e2e.engine.subjects import BLOCKS, CONTEXT_TOKENS, NAME, SEQUENCES, Subject, fake, real
from e2e.engine.tally import Tally
from plimsoll.core.logs import read_log
from tests.unit.facts.pages import READ, lacking

pytestmark = pytest.mark.timeout(700)
KINDS: Final = ("fake", "real")


@pytest.fixture(scope="module", params=KINDS)
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "fake":
        return fake()
    return real(
        request.getfixturevalue("engine"),
        request.getfixturevalue("vllm"),
        request.getfixturevalue("tiny_models"),
        preloaded.ENVIRONMENT,
    )


@pytest.fixture(scope="module")
def drained(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Life:
    return asyncio.run(journey.drained(subject, tmp_path_factory.mktemp("drained")))


@pytest.fixture(scope="module")
def killed(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """The real one's engine in a process of its own: that is what dies."""
    env = {**subject.env, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    return asyncio.run(journey.killed(replace(subject, env=env), tmp_path_factory.mktemp("killed")))


@pytest.fixture(autouse=True)
def counted(tally: Tally, subject: Subject) -> None:
    tally.count("conformance", subject.name)


def test_the_port_is_closed_until_the_engine_is_ready(drained: Life) -> None:
    assert drained.loading == [CLOSED, 200]


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ("health", 200), ("ping", 200), ("version", 200), ("models", 200), ("no such path", 404),
        ("a wrong method", 405),
        ("a completion", 200), ("a chat", 200), ("a stream", 200), ("another model", 404), ("too long", 400),
        ("no prompt", 400), ("not an object", 400),
    ],
)  # fmt: skip
def test_answers_have_the_same_status(drained: Life, question: str, status: int) -> None:
    assert drained.answers[question][0] == status


def test_a_model_says_its_name_and_length(drained: Life) -> None:
    (card,) = drained.answers["models"][1]["data"]
    assert (card["id"], card["max_model_len"]) == (NAME, CONTEXT_TOKENS)


@pytest.mark.parametrize("question", ["a completion", "a chat"])
def test_a_completion_counts_its_tokens(drained: Life, question: str) -> None:
    answer = drained.answers[question][1]
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_stream_ends_with_its_mark(drained: Life) -> None:
    assert drained.answers["a stream"][1].rstrip().endswith("data: [DONE]")


@pytest.mark.parametrize("question", ["another model", "too long", "no such path"])
def test_an_error_is_an_object_that_says_why(drained: Life, question: str) -> None:
    body = drained.answers[question][1]
    assert body.get("error", {}).get("message") or body["detail"] == "Not Found"


def test_the_page_has_what_the_operator_reads(drained: Life, subject: Subject, tally: Tally) -> None:
    assert list(lacking(drained.after_page, VERSION)) == []
    tally.count("metrics", f"{VERSION} as the {subject.name} shows them", len(READ))


def test_the_pool_is_in_the_pages_labels(drained: Life, subject: Subject) -> None:
    (line,) = re.findall(r"^vllm:cache_config_info\{(.*)\} 1\.0$", drained.idle_page, re.MULTILINE)
    labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
    assert (labels["num_gpu_blocks"], labels["block_size"]) == (str(BLOCKS), str(subject.block_tokens))
    assert labels["kv_cache_size_tokens"] == str(BLOCKS * subject.block_tokens)


def test_a_pool_that_is_too_small_for_its_clients_fills_queues_and_preempts(drained: Life) -> None:
    peak = {name: max(sample[name] for sample in drained.pressed) for name in drained.pressed[0]}
    assert peak["vllm:kv_cache_usage_perc"] > 0.9
    assert peak["vllm:num_requests_waiting"] > 0
    assert peak["vllm:num_preemptions_total"] > 0
    assert 1 < peak["vllm:num_requests_running"] <= SEQUENCES
    assert set(drained.finished) == {200}


def test_nothing_is_used_once_all_are_served(drained: Life) -> None:
    page = journey.totals(drained.after_page)
    names = ("kv_cache_usage_perc", "num_requests_running", "num_requests_waiting")
    assert {name: page[f"vllm:{name}"] for name in names} == dict.fromkeys(names, 0.0)
    assert page["vllm:generation_tokens_total"] > len(drained.finished)
    assert page["vllm:request_success_total"] >= len(drained.finished)


def test_a_draining_server_is_healthy_and_takes_nothing(drained: Life) -> None:
    assert drained.draining == {"health": 200, "a completion": 500}


def test_requests_in_flight_are_served_to_their_end(drained: Life) -> None:
    assert [status for status, _ in drained.in_flight] == [200, 200]
    assert all(text.rstrip().endswith("data: [DONE]") for _, text in drained.in_flight)


def test_a_drained_server_ends_well_and_alone(drained: Life) -> None:
    assert (drained.exit_code, drained.left_running) == (0, 0)


def test_our_reading_of_the_log_finds_a_start_and_no_failure(drained: Life, subject: Subject) -> None:
    log = read_log(drained.log)
    assert (log.failure, log.ready, log.version) == (None, True, VERSION)
    assert log.arguments["max_model_len"] == CONTEXT_TOKENS
    assert log.figures["kv_tokens"] == BLOCKS * subject.block_tokens
    assert log.figures["max_concurrency"] == BLOCKS * subject.block_tokens / CONTEXT_TOKENS


def test_a_full_queue_answers_503_and_is_counted(killed: Life) -> None:
    assert set(killed.finished) == {200, 503}
    rejected = journey.totals(killed.after_page)["vllm:admission_rejections_total"]
    assert rejected == killed.finished.count(503)


def test_a_server_whose_engine_died_ends_with_exit_code_zero(killed: Life) -> None:
    assert killed.exit_code == 0
    assert killed.left_running == 0
    assert set(killed.ending) <= {200, 503, CLOSED}


def test_a_stream_whose_engine_died_ends_with_an_error(killed: Life) -> None:
    ((status, text),) = killed.in_flight
    assert status in {200, CLOSED}
    assert "[DONE]" not in text or "error" in text


def test_our_reading_of_the_log_says_that_the_engine_died(killed: Life) -> None:
    failure = read_log(killed.log).failure
    assert failure is not None
    assert failure.cause.word == "engine_died"


REFUSALS: Final = {
    "an unknown flag": (2, "bad_flag"),
    "a value that is none": (2, "bad_flag"),
    "longer than the model": (1, "max_model_len_above_model"),
    "a pool too small": (1, "kv_cache_too_small"),
}


def _arguments(subject: Subject, case: str) -> list[str]:
    too_small = str(2 * subject.bytes_per_block)
    return {
        "an unknown flag": ["--no-such-flag", "1"],
        "a value that is none": ["--max-num-seqs", "many"],
        "longer than the model": ["--max-model-len", "10000000"],
        "a pool too small": ["--max-model-len", str(CONTEXT_TOKENS), "--kv-cache-memory-bytes", too_small],
    }[case]


@pytest.mark.parametrize("case", REFUSALS)
def test_a_start_is_refused_with_the_same_code_and_cause(subject: Subject, case: str, tmp_path: Path) -> None:
    life = asyncio.run(journey.refused(subject, _arguments(subject, case), tmp_path))
    failure = read_log(life.log).failure
    assert failure is not None, life.log
    assert (life.exit_code, failure.cause.word) == REFUSALS[case]
    assert set(life.loading) <= {CLOSED}
    if case == "a pool too small":
        assert failure.figures["estimated_max_model_len"] == subject.block_tokens
