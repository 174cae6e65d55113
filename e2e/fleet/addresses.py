"""Loopback addresses for pods: every fleet takes one 127.B.0.0/16 block, held by its kubelet port."""

from __future__ import annotations

import os
import random
import socket
from collections import deque

KUBELET_PORT = 10250
FIRST_BLOCK, LAST_BLOCK = 16, 250
HOSTS = 254 * 250


class AddressBlock:
    """Addresses of one fleet. Binding ``127.B.255.254:10250`` is the claim: a second fleet takes another block."""

    def __init__(self) -> None:
        self.kubelet_socket = self._claim()
        self.node_address: str = self.kubelet_socket.getsockname()[0]
        self._block = int(self.node_address.split(".")[1])
        self._next = 0
        self._returned: deque[str] = deque()

    def take(self) -> str:
        """An address nobody in this fleet uses; the longest unused is taken again first when all were used.

        Raises:
            RuntimeError: every address is in use.

        """
        if self._next < HOSTS:
            number, self._next = self._next, self._next + 1
            return f"127.{self._block}.{number // 250}.{number % 250 + 1}"
        if not self._returned:
            raise RuntimeError(f"all {HOSTS} pod addresses of 127.{self._block}.0.0/16 are in use")
        return self._returned.popleft()

    def give_back(self, address: str) -> None:
        self._returned.append(address)

    @staticmethod
    def _claim() -> socket.socket:
        blocks = list(range(FIRST_BLOCK, LAST_BLOCK + 1))
        random.Random(os.getpid()).shuffle(blocks)
        for block in blocks:
            candidate = socket.socket()
            try:
                candidate.bind((f"127.{block}.255.254", KUBELET_PORT))
            except OSError:
                candidate.close()
                continue
            candidate.listen(64)
            candidate.setblocking(False)
            return candidate
        raise RuntimeError(f"no free 127.B.0.0/16 block: port {KUBELET_PORT} of 127.B.255.254 is taken in each")
