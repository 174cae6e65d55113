"""The fleet's control socket: one JSON request and one JSON answer a line, over a unix socket in the lab's folder.

``{"do": "fault_pod", "namespace": "llm", "name": "a", "kind": "crash"}`` → ``{"ok": true, "result": null}``,
or ``{"ok": false, "error": "…"}``.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

LINE_LIMIT_BYTES = 1 << 20
Commands = Mapping[str, Callable[..., Awaitable[Any]]]


class ControlError(Exception):
    """The fleet refused, or is not there."""


class ControlServer:
    """Answers requests with the given commands; each connection is served on its own."""

    def __init__(self, path: Path, commands: Commands) -> None:
        self._path, self._commands = path, commands
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._connected, self._path, limit=LINE_LIMIT_BYTES)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._wanted(line, reader)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the caller went away, or sent a line without end
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _wanted(self, line: bytes, reader: asyncio.StreamReader) -> dict[str, Any]:
        """The answer; a command whose caller goes away (a load, stopped by Ctrl-C) ends."""
        answer, gone = asyncio.create_task(self._answer(line)), asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ConnectionResetError("the caller went away")
            return answer.result()
        finally:
            for task in (answer, gone):
                task.cancel()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            command = self._commands[request.pop("do")]
            return {"ok": True, "result": await command(**request)}
        except (ValueError, LookupError) as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever it was, the caller is told and the fleet runs on
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}


def call(path: Path, command: str, /, **arguments: Any) -> Any:
    """Run one command in the fleet that listens on ``path``; blocks until it is done.

    Raises:
        ControlError: nobody listens, or the fleet says no.

    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError as error:
            raise ControlError(f"no fleet listens on {path}: {error}; is the lab up?") from error
        connection.sendall(json.dumps({"do": command, **arguments}).encode() + b"\n")
        answer = json.loads(connection.makefile("rb").readline() or b'{"ok": false, "error": "the fleet went away"}')
    if not answer["ok"]:
        raise ControlError(answer["error"])
    return answer["result"]
