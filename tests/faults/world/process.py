"""One operator process in the world: the operator's own parts on a loop of its own. It can be killed and stopped."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.lease import KubeLease
from plimsoll.adapters.ports import SERVICES, Change, ClusterError, GoneError, MetricsSource
from plimsoll.control.assembly import Operator, Outside
from plimsoll.control.cache import Cache, Key
from plimsoll.control.remember import remember
from plimsoll.control.workqueue import WorkQueue
from plimsoll.settings import Settings
from tests.faults.world.connection import Connection
from tests.faults.world.virtual_time import Agenda, ProcessClock, ProcessLoop

BACKOFF_SECONDS: Final = 1.0
_DYING: Final = 20


@dataclass
class Process:
    """An operator that runs. ``stopped``: as after SIGSTOP, it neither computes nor takes replies."""

    name: str
    loop: ProcessLoop
    clock: ProcessClock
    connection: Connection
    operator: Operator
    tasks: list[asyncio.Task[None]]
    when_gone: Callable[[], None]
    stopped: bool = False
    killed: bool = False

    @property
    def next_seconds(self) -> float:
        """When it has something to do."""
        return float("inf") if self.stopped or self.killed else self.loop.next_seconds

    @property
    def leads(self) -> bool:
        """Whether it acts on services."""
        return not self.killed and self.operator.elector.leading.is_set()

    def run(self) -> None:
        """Let it do what it has to do at this moment."""
        self.loop.run_until_idle()
        if self.killed:
            self._bury()

    def kill(self) -> None:
        """SIGKILL: whatever it was about to do does not happen."""
        if self.killed:
            return
        self._go()
        if not self.loop.is_running():
            self._bury()

    def terminate(self) -> None:
        """SIGTERM: it ends its parts, gives the Lease back, and goes."""
        self.loop.create_task(self._end())

    async def _end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.operator.elector.release()
        self._go()

    def _go(self) -> None:
        self.killed = True
        self.connection.close()
        self.when_gone()

    def _bury(self) -> None:
        """Unwind what is left of its tasks, unseen by anybody."""
        if self.loop.is_closed():
            return
        for _ in range(_DYING):
            left = asyncio.all_tasks(self.loop)
            if not left:
                break
            for task in left:
                task.cancel()
            self.loop.run_until_idle()
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.create_task(self.loop.shutdown_asyncgens())
        self.loop.run_until_idle()
        self.loop.close()


def start(
    name: str,
    settings: Settings,
    agenda: Agenda,
    connect: Callable[[ProcessLoop], Connection],
    metrics: Callable[[Connection], MetricsSource | None],
    when_gone: Callable[[], None],
) -> Process:
    """Start an operator."""
    loop = ProcessLoop(agenda)
    connection, clock = connect(loop), ProcessClock(loop)
    holder: list[Process] = []

    async def begin() -> None:
        outside = Outside(
            cluster=connection,
            clock=clock,
            metrics=metrics(connection),
            lease_of=partial(_lease, connection),
            watch_services=partial(_watch_services, connection, settings.namespaces),
            identity=name,
        )
        operator = Operator.assemble(settings, outside)
        tasks = [asyncio.create_task(part, name=part_name) for part_name, part in operator.parts()]
        holder.append(Process(name, loop, clock, connection, operator, tasks, when_gone))

    loop.create_task(begin())
    loop.run_until_idle()
    return holder[0]


def _lease(connection: Connection, address: str) -> KubeLease:
    return KubeLease(cast("KubeCluster", connection), *address.split("/", 1))


async def _watch_services(
    connection: Connection, namespaces: tuple[str, ...], cache: Cache, queue: WorkQueue[Key]
) -> None:
    """In Kopf's place, as Kopf does it: list, watch; after 410 list anew, and never say what is gone meanwhile."""
    async with asyncio.TaskGroup() as group:
        for namespace in namespaces or (None,):
            group.create_task(_follow(connection, namespace, cache, queue))


async def _follow(connection: Connection, namespace: str | None, cache: Cache, queue: WorkQueue[Key]) -> None:
    def tell(change: Change) -> None:
        remember(SERVICES, change, cache, queue)

    while True:
        try:
            since = await connection.version(SERVICES, namespace)
            async for obj in connection.list(SERVICES, namespace):
                tell(Change(deleted=False, object=obj))
            while True:
                async for change in connection.watch(SERVICES, namespace, "", since):
                    since = change.object["metadata"]["resourceVersion"]
                    tell(change)
        except GoneError:
            continue
        except ClusterError as error:
            if error.status == 403:
                raise
            await asyncio.sleep(BACKOFF_SECONDS)


class Unexpected(logging.Handler):
    """Collects what the operator logs as an error: it has raised something that nobody expected."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))
