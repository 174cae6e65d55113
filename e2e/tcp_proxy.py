"""A TCP proxy between the operator and the API server that can be slow, lose connections and swallow everything."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

CHUNK_BYTES = 1 << 16
BLINK_SECONDS = 0.05


@dataclass
class TcpProxy:
    """``delay_seconds`` holds every piece up; while ``swallows``, nothing comes through and nobody is told."""

    target: tuple[str, int]
    delay_seconds: float = 0.0
    swallows: bool = False
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _open: set[socket.socket] = field(default_factory=set)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> int:
        """Break every connection; how many there were."""
        broken = [*self._open]
        for side in broken:
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
        return len(broken)

    def _accept(self) -> None:
        for client in self._clients():
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            for source, sink in ((client, server), (server, client)):
                self._open.add(source)
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _clients(self) -> Iterator[socket.socket]:
        while True:
            try:
                yield self._listener.accept()[0]
            except OSError:
                return

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(CHUNK_BYTES):
                time.sleep(self.delay_seconds)
                while self.swallows:
                    time.sleep(BLINK_SECONDS)
                sink.sendall(piece)
        self._open.discard(source)
        for side in (source, sink):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
        source.close()
