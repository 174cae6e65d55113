"""Whatever engines, nodes, Prometheus, rows and traces say: words or clear errors, in bounded time, no traceback."""

import contextlib
import copy
import gzip
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from plimsoll.adapters.prometheus import PrometheusSource
from plimsoll.cli.predict import Models
from plimsoll.core import promql
from plimsoll.core.causes import CAUSES
from plimsoll.core.logs import SAID_LIMIT, read_log
from plimsoll.core.pods import PodState, pod_state
from plimsoll.core.rows import answer
from plimsoll.core.sampling import Answer, Fault, Sampling, Series, read, view
from plimsoll.core.signals import Sample, Signal
from plimsoll.settings import PrometheusSettings
from plimsoll.sim.requests import Request
from plimsoll.sim.traces import TraceError, read_trace
from tests.property.amount import examples

MANY: Final = settings(
    deadline=None, max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
LINES: Final = 32
LONGEST_LINE: Final = 16_384
# What the patterns of causes and figures begin with: each repeated is the worst line for one of them.
BEGINNINGS: Final = (
    "creating shared memory ", "No space left on device ", "shm ", "NCCL WARN ", "non-default args: {",
    "does not support ",
    "Free memory on device ", "CUDA out of memory. Tried to allocate 1 GiB ", "Model architectures ", "forward ",
    "max seq len (1), (1 GiB KV cache is needed, which is larger than the available KV cache memory (1 GiB)",
    "Initializing a V1 LLM engine ", "Initializing a V1 LLM engine  with config: ", "(APIServer) ", "a.b.C", "Aa.",
    "FileNotFoundError: ", "No such file or directory: ", "Can't find ", "Transformers version ", "\x1b[0", "((((",
    "1,", "Value error, ", "Input should be ", "model   ", "Model loading took 1 GiB ", " ", "://a:", "-----BEGIN ",
    "eyJ",
    "sk-", "password:", "Bearer ", "api_key=", "a|", "0x", "-",
)  # fmt: skip
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


# Logs.


@pytest.mark.timeout(30)
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_no_log_holds_up_the_operator(beginning: str) -> None:
    """As much as is read of one log, made to be slow: a pattern that goes back and forth took a minute."""
    line = (beginning * LONGEST_LINE)[:LONGEST_LINE]
    read_log("\n".join([line] * LINES))


@MANY
@given(
    st.lists(
        st.text(max_size=80) | st.sampled_from([*BEGINNINGS, *(cause.pattern.pattern[:60] for cause in CAUSES)]),
        max_size=12,
    )
)
@example(["non-default args: {" + "[" * 5000])
@example(["non-default args: {'model': 3, 4: 5}"])
@example(["KV cache size: ,,, tokens", "Available KV cache memory: 1.2.3 GiB", "Free memory on device (1/. GiB)"])
def test_any_log_is_read(parts: list[str]) -> None:
    for log in ("\n".join(parts), " ".join(parts)):
        found = read_log(log)
        assert found.failure is None or len(found.failure.said) <= SAID_LIMIT
        assert all(math.isfinite(value) for value in found.figures.values())


# Pods, as a node may report them.

TERMINATED: Final = {"exitCode": 1, "reason": "Error", "message": "CUDA error", "finishedAt": "2026-11-30T05:00:00Z"}
POD: Final[dict[str, Any]] = {
    "metadata": {
        "name": "svc-1", "namespace": "llm", "uid": "u", "labels": {"plimsoll.dev/track": "main"},
        "creationTimestamp": "2026-11-30T05:00:00Z",
    },
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-30T05:00:00Z"},
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-30T05:00:00Z", "message": "not ready"},
        ],
        "initContainerStatuses": [{"name": "init", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}],
        "containerStatuses": [
            {
                "name": "vllm", "ready": False, "started": True, "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}},
                "lastState": {"terminated": TERMINATED},
            },
            {"name": "side", "ready": False, "restartCount": 1, "state": {"terminated": TERMINATED}},
        ],
    },
}  # fmt: skip
TEXTS: Final = st.text(max_size=40) | st.sampled_from(
    ["", "not-a-time", "9999-99-99T99:99:99Z", "0", "x" * 5000, "\x00"]
)


def _optional(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of what the API server may leave out: everything but the names of list entries and of the pod."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in entries:
        if key not in ("name", "type", "metadata", "namespace"):
            yield (*at, key)
        yield from _optional(child, (*at, key))


PATHS: Final = sorted(_optional(POD), key=str)


@MANY
@given(
    gone=st.lists(st.sampled_from(PATHS), max_size=6),
    said=st.lists(st.tuples(st.sampled_from(PATHS), TEXTS), max_size=3),
)
def test_any_pod_has_a_state(gone: list[tuple[Any, ...]], said: list[tuple[tuple[Any, ...], str]]) -> None:
    pod = copy.deepcopy(POD)
    for path, text in said:
        owner = _at(pod, path[:-1])
        if isinstance(owner, dict) and isinstance(owner.get(path[-1]), str):
            owner[path[-1]] = text
    for path in gone:
        owner = _at(pod, path[:-1])
        if isinstance(owner, dict):
            owner.pop(path[-1], None)
    state = pod_state(pod)
    assert state is None or len(str(state)) < 10_000


def _at(node: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        node = node[part] if isinstance(node, list) else node.get(part, {}) if isinstance(node, dict) else {}
    return node


# Prometheus.

ENGINE: Final = {"namespace": "llm", "pod": "svc-1", "engine": "0"}
LABELS: Final = st.dictionaries(
    st.sampled_from(["namespace", "pod", "engine", "signal", "percentile", "num_gpu_blocks", "block_size", "x"]),
    st.text(max_size=6) | st.sampled_from([*Signal.__members__, "95", "0", "llm", "svc-1", "²", "9" * 400, "-1"]),
)
VALUES: Final = st.floats() | st.sampled_from([0.0, 1.0, -1.0, 1e308, math.nan, math.inf, -math.inf])


@MANY
@given(st.dictionaries(st.sampled_from([promql.NOW, promql.PEAK, promql.RATES, promql.POOL, promql.AGE, promql.TTFT]),
                       st.lists(st.tuples(LABELS.map(lambda own: {**ENGINE, **own}), VALUES), max_size=4)))  # fmt: skip
def test_any_answer_becomes_readings(found: dict[str, list[tuple[dict[str, str], float]]]) -> None:
    """What is no number, or of no age, is never taken for a figure."""
    answers = {name: Answer(tuple(Series(labels, value) for labels, value in series)) for name, series in found.items()}
    readings = read(answers, 90)
    for engines in readings.values():
        for said in engines.values():
            assert all(math.isfinite(one.value) and one.value >= 0 for one in said.values() if isinstance(one, Sample))
    fleet = view([PodState("ready", name="svc-1")], "llm", Sampling(1, 0.0, readings))
    assert bool(fleet.why_incomplete) != fleet.complete


def _vector(result: Any) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


BODIES: Final = (
    st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | JSON.map(lambda value: json.dumps({"status": "success", "data": value}).encode())
    | JSON.map(_vector)
    | st.lists(st.fixed_dictionaries({"metric": JSON, "value": JSON}), max_size=4).map(_vector)
)


@MANY
@given(body=BODIES, status=st.sampled_from([200, 200, 200, 204, 301, 400, 401, 404, 422, 429, 500, 503]))
async def test_any_body_is_an_answer_or_a_fault(body: bytes, status: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests.Session, "request", lambda *_, **__: _response(status, body))
        source = PrometheusSource(PrometheusSettings(url="http://prometheus.example.com"))
        try:
            found = await source.query("up")
        finally:
            source.close()
    assert isinstance(found, Answer | Fault)
    if isinstance(found, Fault):
        assert 0 < len(found.message) < 1000


def _response(status: int, body: bytes) -> requests.Response:
    response = requests.Response()
    response.status_code, response.raw = status, io.BytesIO(body)
    response.url = "http://prometheus.example.com"
    return response


# Rows of `plimsoll predict`.

ROW: Final[dict[str, Any]] = {
    "id": "a1", "model": "Qwen/Qwen3-8B", "engine_version": "0.32.0", "gpu": "NVIDIA-L40S",
    "flags": {"tensor_parallel_size": 1, "max_model_len": 8192, "kv_cache_dtype": "auto", "hf_overrides": {}},
    "load": {"prompt_tokens": 1024, "output_tokens": 512, "concurrency": 16}, "available_kv_bytes": None,
    "gpu_memory_bytes": None, "weights_bytes": None, "accepted_tokens_per_step": None, "quant_config": None,
}  # fmt: skip
ODD: Final = JSON | st.sampled_from(
    [0, 1, -1, 10**400, "", "fp8", "1e9", "8K", [], {}, "Qwen/Qwen3.5-9B", "../x", "\x00"]
)


@MANY
@given(
    spoilt=st.lists(st.tuples(st.sampled_from([*ROW, *ROW["flags"], *ROW["load"]]), ODD), max_size=3),
    more=st.dictionaries(st.text(max_size=10), ODD, max_size=1),
)
def test_any_row_has_an_answer(tmp_path: Path, spoilt: list[tuple[str, Any]], more: dict[str, Any]) -> None:
    row = {**copy.deepcopy(ROW), **more}
    for key, value in spoilt:
        place = next(
            part
            for part in (row["flags"], row["load"], row)
            if not isinstance(part, dict) or key in part or part is row
        )
        (place if isinstance(place, dict) else row)[key] = value
    found = answer(row, Models(tmp_path))
    assert found["outcome"] in {"starts", "refused", "unknown"}
    assert found["outcome"] == "starts" or found["message"]
    json.dumps(found, allow_nan=False)


# Traces.

CELLS: Final = st.sampled_from(
    ["0", "1", "10", "600", "1.5", "-1", "1e3", "nan", "inf", "-inf", "", "x", "9" * 400, "1e300", " 7 "]
)
HEADS: Final = (
    "arrival_s,prompt_tokens,output_tokens", "arrival_s,prompt_tokens,output_tokens,block512_ids",
    "t_s,rate_rps,mean_prompt,mean_output", "session,t_s,prompt_chars,output_chars,shared_prefix_chars", "a,b", "",
)  # fmt: skip


@MANY
@given(
    head=st.sampled_from(HEADS),
    rows=st.lists(st.lists(CELLS, min_size=1, max_size=6), max_size=5),
    packed=st.booleans(),
    noise=st.binary(max_size=20),
    part=st.sampled_from([(0.0, math.inf), (1.0, 700.0), (5.0, 1.0)]),
)
def test_any_trace_is_read_or_named(
    tmp_path: Path, head: str, rows: list[list[str]], packed: bool, noise: bytes, part: tuple[float, float]
) -> None:
    text = "\n".join([head, *(",".join(row) for row in rows)]).encode() + noise
    file = tmp_path / ("trace.csv.gz" if packed else "trace.csv")
    file.write_bytes(gzip.compress(text)[: len(text) or None] + noise if packed else text)
    found: list[Request] = []
    with contextlib.suppress(TraceError):
        found = read_trace(file, start=part[0], end=part[1])
    assert all(math.isfinite(each.arrival_seconds) and each.prompt_tokens >= 1 for each in found)
