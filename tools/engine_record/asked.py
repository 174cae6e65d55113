"""What the installed engine is asked for a recording: its parser, its planner, its servers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from e2e.controlplane import tether
from e2e.controlplane.ports import HOST, PortLeases
from e2e.engine import models
from e2e.engine.cases import SAID, Case
from e2e.engine.install import VERSION, Engine
from e2e.engine.starts import Outcome, starting
from e2e.fleet.recordings import refusals
from plimsoll.core.logs import read_log

FLAGS: Final = Path(models.__file__).parent / "inside" / "flags.py"
NAME: Final = "tiny"
READY_SECONDS: Final = 240.0
END_SECONDS: Final = 60.0
ASK_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.25
KEPT_LINES: Final = 25
KEPT_CHARACTERS: Final = 600
STARTED: Final = "started: not refused"
SERVED: Final = "served, then SIGTERM"
_START: Final = (
    *("--load-format", "dummy", "--served-model-name", NAME, "--enforce-eager", "--max-model-len", "2048"),
    *("--distributed-executor-backend", "uni", "--kv-cache-memory-bytes", "64m"),
)
_PYTHON: Final = re.compile(r"/\S*?/lib/python3\.\d+")

Row = dict[str, Any]


class NotRecordedError(RuntimeError):
    """The engine did not do what was to be recorded."""


def flags(engine: Engine) -> list[Row]:
    """The options of the engine's own parser."""
    env = {**os.environ, **engine.environment()}
    done = subprocess.run([str(engine.python), str(FLAGS)], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotRecordedError(f"the parser's options: {done.stderr.strip()[-1000:]}")
    rows: list[Row] = json.loads(done.stdout.strip().splitlines()[-1])
    return rows


def layouts(engine: Engine, configs: Mapping[str, Row], asked: Sequence[Row]) -> Iterator[Row]:
    """Starts with these models' configurations; `asked` are rows of another release: model, flags, pool."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "models")
        models.write(written, configs)
        # What an engine would choose by its processor is said to it, and is no part of the question.
        cases = [Case(row["config"], {**SAID.get(row["config"], {}), **row["flags"]}) for row in asked]
        with starting(engine, written, cases, Path(folder)) as starts:
            for row, case in zip(asked, cases, strict=True):
                yield _layout(row, starts.outcome(case))


def _layout(asked: Row, outcome: Outcome) -> Row:
    base = {"version": VERSION, **{key: asked[key] for key in ("config", "flags", "pool_bytes")}}
    if outcome.pool is None:
        return {**base, "error": outcome.error.strip().splitlines()[0][:KEPT_CHARACTERS]}
    figures = read_log(outcome.log).figures
    return {
        **base,
        "num_blocks": outcome.pool["num_blocks"],
        "printed_tokens": figures["kv_tokens"],
        "printed_concurrency": figures["max_concurrency"],
        "block_size": outcome.pool["block_size"],
    }


@dataclass
class Server:
    """The `vllm` command as a process, both of its streams in files."""

    process: subprocess.Popen[bytes]
    url: str
    stdout: Path
    stderr: Path

    def ready(self) -> bool:
        """Wait until it answers; False where it ended instead."""
        give_up = time.monotonic() + READY_SECONDS
        while self.process.poll() is None and time.monotonic() < give_up:
            try:
                _ask(f"{self.url}/health")
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(PAUSE_SECONDS)
            else:
                return True
        return False

    def ended(self) -> int:
        """SIGTERM, as a kubelet sends it; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(END_SECONDS)


@contextmanager
def serving(
    engine: Engine, arguments: Sequence[str], env: Mapping[str, str], folder: Path, *, merged: bool = False
) -> Iterator[Server]:
    """The plain command, nothing preloaded: what it prints is what is recorded."""
    stdout, stderr = folder / "stdout", folder / "stderr"
    with PortLeases() as ports, stdout.open("wb") as out, stderr.open("wb") as err:
        port = ports.lease()
        command = tether.command([str(engine.vllm), "serve", *arguments, "--host", HOST, "--port", str(port)])
        process = subprocess.Popen(
            command,
            env={**os.environ, **engine.environment(), **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT if merged else err,
            start_new_session=True,
        )
        try:
            yield Server(process, f"http://{HOST}:{port}", stdout, stderr)
        finally:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def served(engine: Engine) -> tuple[Row, str]:
    """One life of a server: the row of its log, and its page of metrics after twenty requests."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "models")
        models.write(written)
        arguments = [str(written / "llama"), *_START]
        env = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        with serving(engine, arguments, env, Path(folder), merged=True) as server:
            if not server.ready():
                raise NotRecordedError(f"the server: {server.stdout.read_text()[-1000:]}")
            _twenty_requests(server.url)
            page = _ask(f"{server.url}/metrics")
            code = server.ended()
        lines = _lines(server.stdout, written)
    said = SERVED if code == 0 else f"{SERVED}: exit code {code}"
    return {"version": VERSION, "case": "start", "exit_code": said, "stdout": lines, "stderr": []}, page


def _twenty_requests(url: str) -> None:
    base = {"model": NAME, "max_tokens": 16, "ignore_eos": True}
    chat = {**base, "messages": [{"role": "user", "content": "hello"}]}
    for _ in range(8):
        _ask(f"{url}/v1/completions", {**base, "prompt": "one two three"})
    for _ in range(5):
        _ask(f"{url}/v1/completions", {**base, "prompt": "one two three", "stream": True})
    for _ in range(7):
        _ask(f"{url}/v1/chat/completions", chat)


def _ask(url: str, body: Row | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=ASK_SECONDS) as answer:  # noqa: S310
        text: str = answer.read().decode()
    return text


def refused(engine: Engine) -> Iterator[Row]:
    """The starts that the newest recorded release refused, one after another."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "models")
        models.write(written)
        for case, row in refusals().items():
            arguments = [word.replace("MODEL_DIR", str(written)) for word in row["argv"][1:]]
            yield _refusal(engine, case, arguments, row["env"], written)


def _refusal(engine: Engine, case: str, arguments: Sequence[str], env: Mapping[str, str], written: Path) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        with serving(engine, arguments, env, Path(folder)) as server:
            started = server.ready()
            code = STARTED if started else server.process.poll()
            if started:
                server.ended()
        out, err = (_lines(path, written)[-KEPT_LINES:] for path in (server.stdout, server.stderr))
    return {"version": VERSION, "case": case, "exit_code": code, "stdout": out, "stderr": err}


def _lines(path: Path, written: Path) -> list[str]:
    """What was printed, without this machine's paths."""
    text = path.read_text(errors="replace").replace(str(written), "MODEL_DIR").replace(tempfile.gettempdir(), "TMP")
    text = _PYTHON.sub("PYTHON_LIB", text).replace("PYTHON_LIB/site-packages", "SITE_PACKAGES")
    return [line[:KEPT_CHARACTERS] for line in text.splitlines()]


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
