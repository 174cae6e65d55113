"""The `vllm` command, answered by a preloaded engine: `python -I -S vllm_client.py SOCKET serve MODEL --flags`.

Looks like the server from outside: its output, the signals it gets, its exit code. Imports nothing of ours.
"""

import array
import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

ASIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGABRT, signal.SIGUSR1)


def main(path: str, argv: list[str]) -> int:
    """The server's exit code; a server that a signal ended ends us with the same one."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        for number in ASIDE:
            signal.signal(number, lambda number, _: _pass_on(connection, number))
        request = json.dumps({"argv": argv, "env": dict(os.environ), "cwd": str(Path.cwd())}).encode() + b"\n"
        connection.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))])
        said = b""
        while chunk := connection.recv(64):
            said += chunk
    code = int(json.loads(said)) if said else 1
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _pass_on(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(bytes([number]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
