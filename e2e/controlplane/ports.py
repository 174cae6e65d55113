"""Free loopback ports that stay ours: two labs that start at once never pick the same one."""

import contextlib
import random
import socket
from pathlib import Path
from typing import Final, Self

HOST: Final = "127.0.0.1"
LOWEST: Final = 15_000
ATTEMPTS: Final = 500


class PortLeases:
    """Ports leased for the life of this object.

    Below the kernel's ephemeral range, so that no outgoing connection takes one between our look and the server's
    bind. The lease is an abstract Unix socket named after the port: it exists once a network namespace, as ports
    do, and vanishes with the process that holds it.
    """

    def __init__(self) -> None:
        self._leases = contextlib.ExitStack()

    def lease(self) -> int:
        """A TCP port on 127.0.0.1 that nobody listens on and no other lab has leased."""
        for port in random.sample(range(LOWEST, _first_ephemeral_port()), ATTEMPTS):
            if self._claim(port):
                return port
        raise OSError(f"no free TCP port on {HOST} among {ATTEMPTS} tried from {LOWEST} upwards")

    def close(self) -> None:
        self._leases.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _claim(self, port: int) -> bool:
        with contextlib.ExitStack() as undo:
            lease = undo.enter_context(socket.socket(socket.AF_UNIX))
            try:
                lease.bind(f"\0plimsoll-port-{port}")
                with socket.socket() as probe:
                    probe.bind((HOST, port))
            except OSError:
                return False
            self._leases.push(undo.pop_all())
            return True


def _first_ephemeral_port() -> int:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return first if first > LOWEST + ATTEMPTS else 32_768
