"""One container's life: pull, run under probes, exit, back off, again; and its orderly stop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from e2e.fleet import launcher, probes
from e2e.fleet.process import Exit, Faults, Log, Process

BACK_OFF_SECONDS, LONGEST_BACK_OFF_SECONDS, QUIET_SECONDS = 10, 300, 600
NOTICE_SECONDS = 1.0  # a kubelet sees an exit at its next relist
AFTER_PRE_STOP_SECONDS = 2.0
MESSAGE_BYTES, LOG_MESSAGE_BYTES, LOG_MESSAGE_LINES = 4096, 2048, 80
_SLEEP = re.compile(r"\bsleep\s+(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Waiting:
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    since: datetime


@dataclass(frozen=True)
class Terminated:
    exit: Exit
    message: str
    started: datetime
    finished: datetime


State = Waiting | Running | Terminated


@dataclass(frozen=True)
class Surroundings:
    """What a container needs of its pod."""

    pod_name: str
    address: str
    restart_policy: str
    grace_seconds: float
    back_off_scale: float
    faults: Faults
    start: Callable[[Mapping[str, Any], Log], Process]
    lacks: Callable[[Mapping[str, Any]], Awaitable[str]]
    """What the container's environment refers to and is not there, in the kubelet's words."""
    changed: Callable[[], None]


class BackOff:
    """As the kubelet's: the first restart is immediate, then 10, 20, 40 … 300 s; ten quiet minutes reset it."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._next = 0.0

    def next(self, ran_seconds: float) -> float:
        if ran_seconds >= QUIET_SECONDS * self._scale and self._next:
            self._next = 0.0
        delay, self._next = self._next, min(max(self._next * 2, BACK_OFF_SECONDS), LONGEST_BACK_OFF_SECONDS)
        return delay * self._scale


class Container:
    """A container of a pod; :meth:`run` returns when it will not start again."""

    def __init__(self, spec: Mapping[str, Any], surroundings: Surroundings, restart_count: int = 0) -> None:
        self.spec, self._around = spec, surroundings
        self.state: State = Waiting("ContainerCreating")
        self.last: Terminated | None = None
        self.restart_count = restart_count
        self.ready = self.started = False
        self.log = Log()
        self.previous_log: Log | None = None
        self._process: Process | None = None
        self._stopping = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    async def run(self) -> None:
        back_off = BackOff(self._around.back_off_scale)
        while not self._stopping.is_set():
            if not await self._pull() or not await self._configured():
                return
            ended = await self._run_once()
            if self._stopping.is_set() or not self._restarts(ended.exit):
                return
            if await self._back_off(back_off, ended):
                return
            self.restart_count += 1

    async def stop(self, grace_seconds: float) -> None:
        """The end of the pod: preStop and SIGTERM within the grace period, then SIGKILL."""
        self._stopping.set()
        await self.end_process(grace_seconds)

    async def end_process(self, grace_seconds: float) -> None:
        """Stop what runs now; :meth:`run` decides whether it starts again."""
        process = self._process
        if process is None:
            return
        exited = asyncio.ensure_future(process.wait())
        begun = asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._pre_stop(exited)
        process.terminate()
        left = grace_seconds - (asyncio.get_running_loop().time() - begun)
        _, pending = await asyncio.wait({exited}, timeout=max(left, AFTER_PRE_STOP_SECONDS) if grace_seconds else 0)
        if pending:
            process.kill()
            await exited

    def kill(self, reason: str = "") -> None:
        if self._process is not None:
            self._process.kill(reason)

    def crash(self) -> None:
        if self._process is not None:
            self._process.crash()

    async def abandon(self) -> None:
        """The node is gone: no grace, no status."""
        self._stopping.set()
        process = self._process
        if process is not None:
            process.kill()
            await process.wait()

    async def _pull(self) -> bool:
        """Until the image is there; False when the pod ends first."""
        image, delay = self.spec["image"], BACK_OFF_SECONDS * self._around.back_off_scale
        while not launcher.image_exists(image, absent=self._around.faults.image_absent):
            text = f'failed to pull and unpack image "{image}": not found'
            self._set(Waiting("ErrImagePull", text))
            if await self._sleep(NOTICE_SECONDS):
                return False
            self._set(Waiting("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {text}'))
            if await self._sleep(delay):
                return False
            delay = min(delay * 2, LONGEST_BACK_OFF_SECONDS * self._around.back_off_scale)
        return not self._stopping.is_set()

    async def _configured(self) -> bool:
        """Until what the environment refers to is there; False when the pod ends first."""
        while lacking := await self._around.lacks(self.spec):
            self._set(Waiting("CreateContainerConfigError", lacking))
            if await self._sleep(NOTICE_SECONDS):
                return False
        return not self._stopping.is_set()

    async def _run_once(self) -> Terminated:
        if self.last is not None:
            self.previous_log, self.log = self.log, Log()
        self._around.faults.hang = False
        begun = datetime.now(UTC)
        self._process = process = self._around.start(self.spec, self.log)
        self.started = "startupProbe" not in self.spec or not process.listens
        self.ready = self.started and ("readinessProbe" not in self.spec or not process.listens)
        self._set(Running(begun))
        watching = self._spawn(self._probe()) if process.listens else None
        try:
            exit_ = await process.wait()
        finally:
            self._process = None
            self.log.close()
            if watching is not None:
                watching.cancel()
        self.ready = self.started = False
        self.last = ended = Terminated(exit_, self._message(exit_), begun, datetime.now(UTC))
        self._set(ended)
        return ended

    async def _back_off(self, back_off: BackOff, ended: Terminated) -> bool:
        """Wait before a restart; True when the pod ends meanwhile."""
        delay = back_off.next((ended.finished - ended.started).total_seconds())
        if await self._sleep(min(NOTICE_SECONDS, delay or NOTICE_SECONDS)):
            return True
        if not delay:
            return False
        text = f"back-off {delay:g}s restarting failed container={self.name} pod={self._around.pod_name}"
        self._set(Waiting("CrashLoopBackOff", text))
        return await self._sleep(delay)

    def _restarts(self, exit_: Exit) -> bool:
        policy = self.spec.get("restartPolicy") or self._around.restart_policy
        return policy == "Always" or (policy == "OnFailure" and exit_.code != 0)

    async def _probe(self) -> None:
        """Startup first and alone; then liveness and readiness together."""
        if "startupProbe" in self.spec:
            passed = await self._startup()
            if not passed:
                self._end_unhealthy(self.spec["startupProbe"], "startup")
                return
            self.started = True
            self.ready = "readinessProbe" not in self.spec
            self._around.changed()
        running = [self._run_probe("readinessProbe", self._readiness), self._run_probe("livenessProbe", self._liveness)]
        await asyncio.gather(*running)

    async def _startup(self) -> bool:
        verdict: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        attempts = asyncio.ensure_future(
            self._run_probe("startupProbe", lambda passed: None if verdict.done() else verdict.set_result(passed))
        )
        try:
            return await verdict
        finally:
            attempts.cancel()

    async def _run_probe(self, name: str, report: Callable[[bool], None]) -> None:
        probe = self.spec.get(name)
        if probe:
            ports = {port["name"]: port["containerPort"] for port in self.spec.get("ports") or () if "name" in port}
            said: set[str] = set()
            await probes.run(
                probe, lambda: probes.check(probe, self._around.address, ports, lambda t: self._say(t, said)), report
            )

    def _readiness(self, passed: bool) -> None:
        if self.ready != passed:
            self.ready = passed
            self._around.changed()

    def _liveness(self, passed: bool) -> None:
        if not passed and not self._stopping.is_set():
            self._end_unhealthy(self.spec["livenessProbe"], "liveness")

    def _end_unhealthy(self, probe: Mapping[str, Any], kind: str) -> None:
        self.log.write(f"fleet: container failed its {kind} probe and is stopped")
        grace = probe.get("terminationGracePeriodSeconds") or self._around.grace_seconds
        self._spawn(self.end_process(grace))

    async def _pre_stop(self, exited: asyncio.Future[Exit]) -> None:
        hook = (self.spec.get("lifecycle") or {}).get("preStop") or {}
        seconds = 0.0
        if "sleep" in hook:
            seconds = float(hook["sleep"]["seconds"])
        elif "exec" in hook:
            command = " ".join(hook["exec"]["command"])
            match = _SLEEP.search(command)
            seconds = float(match[1]) if match else 0.0
            if match is None:
                self.log.write(f"fleet: cannot run preStop command {command!r}; taken as success")
        elif "httpGet" in hook:
            await probes.check(
                {"httpGet": hook["httpGet"], "timeoutSeconds": 30}, self._around.address, {}, self.log.write
            )
        if seconds:
            await asyncio.wait({exited}, timeout=seconds)

    def _message(self, exit_: Exit) -> str:
        """The termination-message file, or the log's end when the policy says so and the container failed."""
        if exit_.message:
            return exit_.message.encode()[-MESSAGE_BYTES:].decode(errors="replace")
        if self.spec.get("terminationMessagePolicy") != "FallbackToLogsOnError" or exit_.code == 0:
            return ""
        lines = list(self.log.since(max(0, self.log.written - LOG_MESSAGE_LINES)))
        text = "".join(f"{line.text}\n" for line in lines)
        return text.encode()[-LOG_MESSAGE_BYTES:].decode(errors="replace")

    def _say(self, text: str, said: set[str]) -> None:
        """Once a probe, or the log would hold nothing else."""
        if text not in said:
            said.add(text)
            self.log.write(text)

    def _set(self, state: State) -> None:
        self.state = state
        self._around.changed()

    async def _sleep(self, seconds: float) -> bool:
        """Sleep, unless the pod ends: True."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task
