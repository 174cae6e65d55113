"""What a fake vLLM prints: start-up lines after a recorded 0.32 start, refusals after recorded refusals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from e2e.fleet import recordings
from e2e.fleet.gpus import GIB
from e2e.fleet.pool import Pool
from e2e.fleet.refusals import Refusal
from e2e.fleet.vllm_args import EngineArgs

API, CORE = "(APIServer pid=1)", "(EngineCore pid=96)"
LEAKED = (
    "PYTHON_LIB/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked "
    "shared_memory objects to clean up at shutdown"
)
_STAMP = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d")
_PID = re.compile(r"\((APIServer|EngineCore) pid=\d+\)")


def opening(args: EngineArgs, version: str) -> Iterator[str]:
    """The lines before the weights are loaded."""
    non_default = {name: args[name] for name in sorted(args.given)}
    yield _info(API, "api_utils.py:347", f" ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}")
    yield _info(API, "api_utils.py:347", f"  █▄█▀ █     █     █     █  model   {args.model}")
    yield _info(API, "api_utils.py:286", f"non-default args: {non_default}")


def loading(args: EngineArgs, version: str) -> Iterator[str]:
    yield _info(CORE, "core.py:133", f"Initializing a V1 LLM engine (v{version}) with config: model={args.model!r}")
    yield _info(CORE, "gpu_model_runner.py:68", f"Starting to load model {args.model}...")


def started(pool: Pool, args: EngineArgs, seconds: float) -> Iterator[str]:
    """The lines from loaded weights to the open port; figures in vLLM's own rounding."""
    layout = pool.layout
    if layout.weight_bytes is not None:
        weights = f"Model loading took {layout.weight_bytes / GIB:.4f} GiB memory and {seconds:.6f} seconds"
        yield _info(CORE, "gpu_model_runner.py:112", weights)
    if layout.has_state:
        block = (
            f"Setting attention block size to {layout.block_tokens} tokens to ensure that attention page size is >= "
            "mamba page size."
        )
        yield _info(CORE, "interface.py:640", block)
    yield _info(CORE, "gpu_worker.py:402", f"Available KV cache memory: {pool.available_bytes / GIB:.2f} GiB")
    capacity = (
        f"GPU KV cache size: {pool.size_tokens:,} tokens, Maximum concurrency for {pool.max_model_len:,} tokens per "
        f"request: {pool.max_concurrency:.2f}x"
    )
    yield _info(CORE, "kv_cache_utils.py:2327", capacity)
    yield _info(CORE, "core.py:402", f"init engine (profile, create kv cache, warmup model) took {seconds:.2f} s")
    yield _info(API, "entry.py:136", "Supported tasks: ['generate']")
    yield _info(API, "entry.py:140", f"Starting vLLM server on http://{args['host'] or '0.0.0.0'}:{args['port']}")
    yield from ("INFO:     Started server process [1]", "INFO:     Application startup complete.")


def refused(refusal: Refusal) -> Iterator[str]:
    """The recorded end of such a start with this refusal's message where the recording has its own.

    The cause stands before the API server's traceback, so the last lines of the log do not name it.
    """
    recording = recordings.refusals()[refusal.case]
    head = recording["message_head"].strip()[:40]
    for line in [*recording["stdout_tail"], *recording["stderr_tail"]]:
        restamped = _PID.sub(lambda match: f"({match[1]} pid=1)", _STAMP.sub(_now(), line))
        at = restamped.find(head)
        yield restamped if at < 0 else restamped[:at] + str(refusal).strip()
    if refusal.case.startswith("kv_too_small"):
        yield LEAKED


def shutdown(mode: str, timeout_seconds: int) -> Iterator[str]:
    yield _info(API, "launcher.py:254", "[shutdown] API server: shutdown triggered")
    stopping = f"[shutdown] API server: stopping engine client mode={mode} timeout={timeout_seconds}s"
    yield _info(API, "launcher.py:270", stopping)


def engine_died() -> Iterator[str]:
    yield f"{CORE} ERROR {_now()} [core.py:1510] EngineCore encountered a fatal error."
    yield f"{API} ERROR {_now()} [async_llm.py:704] AsyncLLM output_handler failed: EngineDeadError"


def _info(process: str, where: str, text: str) -> str:
    return f"{process} INFO {_now()} [{where}] {text}"


def _now() -> str:
    return datetime.now().strftime("%m-%d %H:%M:%S")  # noqa: DTZ005 - vLLM logs local time
