"""A fake vLLM process: parse, load with the port closed, refuse or serve, drain on SIGTERM."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from e2e.fleet import enginelog, layouts, pool, vllm_args
from e2e.fleet.engine import Engine, Recorder, SimulatedEngine, Speed
from e2e.fleet.gpus import Gpu
from e2e.fleet.metrics_page import MetricsPage
from e2e.fleet.pool import Pool, Trouble
from e2e.fleet.process import SIGTERM_EXIT, Launch, TaskProcess
from e2e.fleet.refusals import IN_ENGINE, Refusal
from e2e.fleet.server import VllmServer, cache_config
from e2e.fleet.vllm_args import BadArgumentsError, EngineArgs

EngineFactory = Callable[[Pool, Recorder, Speed], Engine]
TIME_FACTOR: Final = "FLEET_TIME_FACTOR"
"""A pod's environment variable: 0.1 makes its engine compute at a tenth of the usual speed."""
UNRECORDED_EXIT = 3
DEAD_ENGINE_SECONDS = 0.6  # /health answers 503 this long before the process ends, with exit code 0
ABORT_SECONDS = 0.4
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_TAG = re.compile(r"v?(\d+\.\d+\.\d+)")


@dataclass(frozen=True)
class VllmOptions:
    """How every fake engine of a fleet behaves."""

    load_seconds: float = 5.0
    engine: EngineFactory = SimulatedEngine
    trouble: Trouble = field(default_factory=Trouble)


class FakeVllm(TaskProcess):
    """One ``vllm serve`` in the fleet's event loop."""

    def __init__(self, launch: Launch, options: VllmOptions) -> None:
        self._launch, self._options = launch, options
        self._crashed = asyncio.Event()
        self._loading_since = time.monotonic()
        super().__init__(self._main)

    def crash(self) -> None:
        """The engine process dies."""
        self._crashed.set()

    async def _main(self, terminated: asyncio.Event) -> int:
        log = self._launch.log
        version = image_version(self._launch.image)
        if vllm_args.table_version(version) != version:
            log.write(f"fleet: no flag table of vLLM {version}; using that of {vllm_args.NEWEST}")
        try:
            args = vllm_args.parse(serve_args(self._launch.command, self._launch.args), version)
        except BadArgumentsError as error:
            log.write("\n".join(error.lines))
            return 2
        log.write("\n".join(enginelog.opening(args, version)))
        try:
            return await self._load_and_serve(args, version, terminated)
        except Refusal as refusal:
            log.write("\n".join(enginelog.refused(refusal)))
            return refusal.exit_code
        except layouts.NotRecordedError as error:
            log.write(
                f"fleet: NOT RECORDED: {error}. Exit {UNRECORDED_EXIT}: this is the test rig's limit, not vLLM's."
            )
            return UNRECORDED_EXIT

    async def _load_and_serve(self, args: EngineArgs, version: str, terminated: asyncio.Event) -> int:
        launch = self._launch
        pool.check_config(args, launch.visible_gpus)
        if launch.gpu is None:
            raise layouts.NotRecordedError("the node has no GPU product label")
        sized = self._size(args, launch.gpu)
        launch.log.write("\n".join(enginelog.loading(args, version)))
        if not await self._load(terminated):
            return 1 if self._crashed.is_set() else SIGTERM_EXIT
        if isinstance(sized, Refusal):
            raise sized
        own = sized.layout.device == launch.gpu.device
        borrowed = "" if own else " (not recorded here; all recorded devices agree)"
        launch.log.write(f"fleet: layout of {sized.layout.title}{borrowed}")
        launch.log.write("\n".join(enginelog.started(sized, args, time.monotonic() - self._loading_since)))
        return await self._serve(args, sized, version, terminated)

    def _size(self, args: EngineArgs, gpu: Gpu) -> Pool | Refusal:
        """The pool; what only a loaded engine can refuse is returned, what the configuration refuses is raised."""
        try:
            allow_long = self._launch.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1"
            return pool.size(args, gpu, allow_long=allow_long, trouble=self._options.trouble)
        except Refusal as refusal:
            if refusal.case != IN_ENGINE:
                raise
            return refusal

    async def _load(self, terminated: asyncio.Event) -> bool:
        """Wait for the weights; the factor may be raised while waiting. False when interrupted."""
        while True:
            due = self._loading_since + self._options.load_seconds * self._launch.faults.slow_load_factor
            left = due - time.monotonic()
            if left <= 0:
                self._launch.faults.slow_load_factor = 1.0
                return True
            if await _first(terminated, self._crashed, seconds=min(left, 1.0)):
                return False

    async def _serve(self, args: EngineArgs, sized: Pool, version: str, terminated: asyncio.Event) -> int:
        page = MetricsPage(args.served_name, sized.max_model_len, cache_config(sized, args))
        speed = Speed(time_factor=float(self._launch.env.get(TIME_FACTOR, "1")))
        engine = self._options.engine(sized, page, speed)
        server = VllmServer(args, sized, engine, page, self._launch.faults, version)
        try:
            if args["host"] in LOOPBACK:
                self._launch.log.write(f"fleet: --host {args['host']} is the container's own; nobody reaches it")
            else:
                await server.start(self._launch.address, args["port"])
            await _first(terminated, self._crashed)
            if self._crashed.is_set():
                return await self._die(server, engine)
            return await self._shut_down(server, engine, args["shutdown_timeout"] or 0)
        except OSError as error:
            self._launch.log.write(f"OSError: {error}")
            return 1
        finally:
            await engine.close()
            await server.stop()

    async def _die(self, server: VllmServer, engine: Engine) -> int:
        """As measured: 503 for a moment, streams end with an error, and the exit code is 0."""
        self._launch.log.write("\n".join(enginelog.engine_died()))
        server.dead = True
        engine.abort_all()
        await asyncio.sleep(DEAD_ENGINE_SECONDS)
        return 0

    async def _shut_down(self, server: VllmServer, engine: Engine, timeout_seconds: int) -> int:
        mode = "drain" if timeout_seconds else "abort"
        self._launch.log.write("\n".join(enginelog.shutdown(mode, timeout_seconds)))
        if timeout_seconds:
            await self._drain(server, timeout_seconds)
        await server.close_port()
        engine.abort_all()
        await asyncio.sleep(ABORT_SECONDS)
        return 0

    async def _drain(self, server: VllmServer, timeout_seconds: int) -> None:
        """/health stays 200 meanwhile. Past the timeout the server waits for its open connections without limit."""
        server.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await server.idle()
                return
        await asyncio.Event().wait()


def image_version(image: str) -> str:
    """The version in an image's tag; the newest known for ``latest`` and digests."""
    match = _TAG.search(image.rpartition(":")[2])
    return match[1] if match else vllm_args.NEWEST


def serve_args(command: Sequence[str], args: Sequence[str]) -> list[str]:
    """What follows ``vllm serve`` (the image's entry point), or the module's name, or a shell line with either."""
    words = [*command, *args]
    shell_line = next((word for word in words if "vllm serve" in word or ("api_server" in word and " " in word)), None)
    if shell_line is not None and " " in shell_line:
        words = shlex.split(shell_line.replace("\\\n", " "))
    for marker in ("serve", "vllm.entrypoints.openai.api_server"):
        if marker in words:
            return list(words[words.index(marker) + 1 :])
    return list(args)


async def _first(*events: asyncio.Event, seconds: float | None = None) -> bool:
    """Wait until one of the events is set; False when the time ran out first."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks:
            task.cancel()
