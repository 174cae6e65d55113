"""Two servers that shall behave alike: a real vLLM, and the fake that the lab takes for one. Each is a process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from e2e.controlplane import tether
from e2e.controlplane.ports import HOST, PortLeases
from e2e.engine.install import Engine

BLOCKS: Final = 128
CONTEXT_TOKENS: Final = 1024
SEQUENCES: Final = 32
NAME: Final = "tiny"
_LIMITS: Final = (
    *("--served-model-name", NAME, "--max-model-len", str(CONTEXT_TOKENS), "--max-num-seqs", str(SEQUENCES)),
    *("--max-num-batched-tokens", "1024"),
)
KILL_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Subject:
    """How to start one of them with a pool of `BLOCKS` blocks. ``engine_signal`` sent to the server ends its engine."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    block_tokens: int
    bytes_per_block: int
    nursery: Path | None = None
    """Where a preloaded engine says which process serves which of its clients."""

    @property
    def pool(self) -> tuple[str, ...]:
        return (*_LIMITS, "--kv-cache-memory-bytes", str(BLOCKS * self.bytes_per_block))

    @property
    def is_real(self) -> bool:
        return self.name == "real"


def fake() -> Subject:
    """Qwen3-8B on an H100 as recorded, with a pool as small as the tiny model's."""
    env = {"FLEET_GPU": "NVIDIA-H100-80GB-HBM3", "FLEET_VISIBLE_GPUS": "1", "FLEET_LOAD_SECONDS": "2"}
    command = (sys.executable, "-m", "e2e.fleet.serve", "Qwen/Qwen3-8B")
    return Subject("fake", command, env, block_tokens=16, bytes_per_block=2_359_296)


def real(engine: Engine, vllm: Sequence[str], models: Path, env: Mapping[str, str]) -> Subject:
    """The tiny Llama. `vllm` is the command, the engine's own or that of a preloaded one."""
    command = (*vllm, "serve", str(models / "llama"), "--load-format", "dummy", "--enforce-eager")
    command += ("--distributed-executor-backend", "uni", "--block-size", "32")
    nursery = None if vllm[0] == str(engine.vllm) else Path(vllm[-1]).parent
    return Subject("real", command, {**engine.environment(), **env}, 32, 32_768, nursery)


class Server:
    """One started server."""

    def __init__(self, subject: Subject, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.subject, self._process, self.port, self._log = subject, process, port, log

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def processes(self) -> list[psutil.Process]:
        """The server and what it started."""
        found = []
        for pid in self._pids():
            with suppress(psutil.NoSuchProcess):
                server = psutil.Process(pid)
                found += [server, *server.children(recursive=True)]
        return found

    def _pids(self) -> Iterator[int]:
        yield self._process.pid
        named = self.subject.nursery and self.subject.nursery / f"{self._process.pid}.server"
        if named and named.exists():
            yield int(named.read_text())

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def end_engine(self) -> None:
        """Kill the engine under the API server, as an out-of-memory killer does."""
        if not self.subject.is_real:
            self._process.send_signal(signal.SIGUSR1)
            return
        *_, server = self._pids()
        for process in psutil.Process(server).children(recursive=True):
            process.kill()

    def close(self) -> None:
        """Kill what is left."""
        left = self.processes()
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(KILL_SECONDS)
        psutil.wait_procs(left, timeout=KILL_SECONDS)


@contextmanager
def serving(subject: Subject, arguments: Sequence[str], folder: Path) -> Iterator[Server]:
    """Start the subject with these arguments; what is left of it at the end is killed."""
    log = folder / f"{subject.name}-{len(list(folder.iterdir()))}.log"
    with PortLeases() as ports:
        port = ports.lease()
        command = tether.command([*subject.command, "--host", HOST, "--port", str(port), *arguments])
        if not subject.is_real:  # its --host is the container's, whose address is not loopback
            command = tether.command([*subject.command, "--port", str(port), *arguments])
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **subject.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        server = Server(subject, process, port, log)
        try:
            yield server
        finally:
            server.close()
