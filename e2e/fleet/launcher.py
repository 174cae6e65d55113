"""Which process an image becomes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from e2e.fleet import realvllm
from e2e.fleet.process import Exit, IdleProcess, Launch, Process
from e2e.fleet.vllm import FakeVllm, VllmOptions

_VLLM_IMAGE = re.compile(r"(^|/)vllm-openai(:|@|$)")
_PROCESS_IMAGE = re.compile(r"(?:^|/)process/([a-z0-9_]+)")
ABSENT = "does-not-exist"


def image_exists(launch_image: str, *, absent: bool) -> bool:
    return not absent and ABSENT not in launch_image


def start(launch: Launch, options: VllmOptions) -> Process:
    """A fake vLLM, a real process (``process/…`` images run their command here), or something that only runs."""
    if _VLLM_IMAGE.search(launch.image):
        return FakeVllm(launch, options)
    if realvllm.wanted(launch):
        return RealProcess(realvllm.launch_of(launch))
    if _PROCESS_IMAGE.search(launch.image):
        return RealProcess(launch)
    launch.log.write(f"fleet: {launch.image} runs and does nothing; its probes are taken as successful")
    return IdleProcess()


class RealProcess:
    """The container's command as a process of this machine, with ``POD_IP`` in its environment.

    The entry point of an image ``process/NAME`` is ``python -m NAME``.

    ``TERMINATION_MESSAGE_PATH`` names a file whose content becomes the termination message.
    """

    listens = True

    def __init__(self, launch: Launch) -> None:
        self._log = launch.log
        self._killed_for = ""
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.ensure_future(self._run(launch))

    async def wait(self) -> Exit:
        return await asyncio.shield(self._task)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self, reason: str = "") -> None:
        self._killed_for = reason
        self._signal(signal.SIGKILL)

    def crash(self) -> None:
        self._signal(signal.SIGABRT)

    def _signal(self, number: signal.Signals) -> None:
        """To the whole process group: an engine has workers."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _run(self, launch: Launch) -> Exit:
        with tempfile.TemporaryDirectory() as folder:
            message = Path(folder, "termination-log")
            try:
                self._process = await self._spawn(launch, {"TERMINATION_MESSAGE_PATH": str(message)})
            except OSError as error:
                self._log.write(f"exec failed: {error}")
                return Exit(128, "StartError", str(error))
            await self._copy_output(self._process)
            code = await self._process.wait()
            text = await asyncio.to_thread(_read, message)
        return Exit(128 - code if code < 0 else code, self._killed_for if code == -9 else "", text)

    async def _spawn(self, launch: Launch, extra: Mapping[str, str]) -> asyncio.subprocess.Process:
        environment = {**os.environ, **launch.env, "POD_IP": launch.address, **extra}
        return await asyncio.create_subprocess_exec(
            *(launch.command or _entry_point(launch.image)),
            *launch.args,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )

    async def _copy_output(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is not None:
            async for line in process.stdout:
                self._log.write(line.decode(errors="replace").rstrip("\n"))


def _entry_point(image: str) -> tuple[str, ...]:
    name = _PROCESS_IMAGE.search(image)
    return (sys.executable, "-m", name[1]) if name else ()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
