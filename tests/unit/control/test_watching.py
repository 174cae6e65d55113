"""Kopf on a loop of its own: when it ends, what is ours goes on. Against an API server that never answers."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from plimsoll.adapters.kube import Access
from plimsoll.control.cache import Cache, Key
from plimsoll.control.workqueue import WorkQueue
from plimsoll.handlers import Watching

Started = Callable[[], AbstractAsyncContextManager[asyncio.Task[None]]]
MOMENTS = 12


@pytest.fixture
async def started() -> AsyncIterator[Started]:
    """Starts Kopf; inside it is about to look at what the API server has, afterwards it has ended."""

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    @asynccontextmanager
    async def start() -> AsyncIterator[asyncio.Task[None]]:
        asked = asyncio.Event()

        async def access() -> Access:
            asked.set()
            return Access(f"http://localhost:{port}", None, verify=False)

        queue: WorkQueue[Key] = WorkQueue(time.monotonic)
        kopf = asyncio.create_task(Watching(Cache(), queue, access, (), request_timeout_seconds=60.0).run())
        await asked.wait()
        yield kopf
        kopf.cancel()
        await asyncio.gather(kopf, return_exceptions=True)

    async with await asyncio.start_server(never_answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        yield start


async def test_its_end_ends_nothing_of_ours(started: Started) -> None:
    async with started() as kopf:
        younger = asyncio.create_task(asyncio.Event().wait())
    assert kopf.cancelled()
    assert not younger.done()
    younger.cancel()


async def test_it_does_not_kill_the_process_later(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Any] = []
    call_later = asyncio.BaseEventLoop.call_later

    def recorded(loop: asyncio.BaseEventLoop, delay: float, callback: Any, *args: Any, **kwargs: Any) -> Any:
        planned.append(callback)
        return call_later(loop, delay, callback, *args, **kwargs)

    async with started():
        monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", recorded)
    assert planned
    assert signal.pthread_kill not in planned


async def test_it_ends_without_a_word_whenever_that_is(started: Started, caplog: pytest.LogCaptureFixture) -> None:
    for moment in range(MOMENTS):
        async with started():
            await asyncio.sleep(moment / 1000)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
