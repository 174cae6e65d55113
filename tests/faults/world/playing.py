"""Runs a coroutine inside the world, as a process of its own that calls the API as anybody does."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from plimsoll.adapters.ports import Kind, Object
from tests.faults.world.connection import Connection
from tests.faults.world.kinds import NAMESPACES
from tests.faults.world.virtual_time import ProcessLoop
from tests.faults.world.world import World

Result = TypeVar("Result")


@dataclass
class Person(Connection):
    """The Cluster port, and what people do besides."""

    async def patch(self, kind: Kind, namespace: str, name: str, change: Object, manager: str) -> Object:
        return self.api.patch(kind, namespace, name, change, manager)

    async def scale(self, kind: Kind, namespace: str, name: str, replicas: int) -> None:
        self.api.scale(kind, namespace, name, replicas, "kubectl")


def play(what: Callable[[Person], Awaitable[Result]], namespace: str) -> Result:
    """What a coroutine returns that is given a server, in a world without operators or nodes."""
    with World(nodes=()) as world:
        world.api.create(NAMESPACES, {"metadata": {"name": namespace}}, "kubectl")
        loop = ProcessLoop(world.agenda)
        task = loop.create_task(_result(what(Person(world.api, world.agenda, loop))))
        while not task.done():
            loop.run_until_idle()
            world.agenda.now = max(world.agenda.now, min(world.agenda.next_seconds, loop.next_seconds))
            world.agenda.run_due()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        return task.result()


async def _result(awaited: Awaitable[Result]) -> Result:
    return await awaited
