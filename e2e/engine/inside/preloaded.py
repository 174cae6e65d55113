"""`vllm` for many starts at the price of one: imports everything once, then forks a server for everyone who connects.

`preloaded.py SOCKET MODELS`, in the engine's Python. A client (`vllm_client.py`) sends argv, environment and two file
descriptors; its server runs vLLM's own command line in a session of its own. The connection carries signals one way
and the exit status the other; a client that is gone takes its server with it.
"""

import array
import contextlib
import ctypes
import importlib
import json
import multiprocessing
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

from vllm.entrypoints.cli import main as command_line

LARGEST_REQUEST = 1 << 20
PR_SET_PDEATHSIG = 1  # linux/prctl.h
PAUSE_SECONDS = 0.05
WARM_SECONDS = 240
WARM = ("--load-format", "dummy", "--enforce-eager", "--max-model-len", "512", "--kv-cache-memory-bytes", "8m")


def tie_children():
    """Have the kernel kill each process forked from here on when its parent dies: nobody else would."""
    parent = [os.getpid()]

    def note():
        parent[0] = os.getpid()

    def tie():
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent[0]:  # it died before the kernel knew
            os._exit(1)

    os.register_at_fork(before=note, after_in_child=tie)


def warm(models):
    """Let a first server start and end in a fork, and import what it had to import."""
    read, write = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "warm.sock")
        server = os.fork()
        if server == 0:
            os.close(read)
            first_server(["serve", str(models / "llama"), *WARM, "--uds", str(path)], write)
        os.close(write)
        give_up = time.monotonic() + WARM_SECONDS
        while not path.exists() and time.monotonic() < give_up:
            time.sleep(PAUSE_SECONDS)
        time.sleep(PAUSE_SECONDS)  # bound, and by now serving
        os.kill(server, signal.SIGTERM)
        with os.fdopen(read) as said:
            imported = said.read().split()
        os.waitpid(server, 0)
    for name in imported:
        with contextlib.suppress(Exception):  # made at run time: no file to import
            importlib.import_module(name)


def first_server(argv, write):
    """Never returns: reports what was imported, whatever the end."""
    signal.alarm(WARM_SECONDS)
    sys.argv = ["vllm", *argv]
    before = set(sys.modules)
    with contextlib.suppress(BaseException):
        command_line.main()
    with os.fdopen(write, "w") as report:
        report.write("\n".join(sorted(set(sys.modules) - before)))
    os._exit(0)


class Nursery:
    """Who serves whom."""

    def __init__(self, listening, folder):
        self.listening, self.folder, self.clients = listening, folder, {}

    def turn(self):
        """Take what came in; in a new server's process: its request, else None."""
        ready, _, _ = select.select([self.listening, *self.clients.values()], [], [], PAUSE_SECONDS)
        for connection in ready:
            if connection is self.listening:
                asked = self.admit()
                if asked is not None:
                    return asked
            else:
                self.listen(connection)
        self.reap()
        return None

    def admit(self):
        connection, _ = self.listening.accept()
        with contextlib.suppress(ValueError, OSError):
            asked, (out, err) = receive(connection)
            server = os.fork()
            if server == 0:
                os.setsid()
                os.dup2(out, 1)
                os.dup2(err, 2)
                for open_one in (self.listening, connection, *self.clients.values()):
                    open_one.close()
                return asked
            self.clients[server] = connection
            self.folder.joinpath(f"{peer_of(connection)}.server").write_text(str(server))
            os.close(out)
            os.close(err)
        return None

    def listen(self, connection):
        """A signal to pass on, or the end of the client."""
        server = next(pid for pid, each in self.clients.items() if each is connection)
        with contextlib.suppress(OSError):
            said = connection.recv(1)
            with contextlib.suppress(ProcessLookupError):
                if said:
                    os.kill(server, said[0])
                else:
                    os.killpg(server, signal.SIGKILL)
            if said:
                return
        del self.clients[server]
        connection.close()

    def reap(self):
        while True:
            try:
                server, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not server:
                return
            connection = self.clients.pop(server, None)
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode())
                connection.close()


def peer_of(connection):
    """The client's process id; its server's is written beside the socket under this name."""
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0]


def receive(connection):
    """The request and its two file descriptors."""
    size = array.array("i", [0, 0])
    data, ancillary, _, _ = connection.recvmsg(LARGEST_REQUEST, socket.CMSG_SPACE(2 * size.itemsize))
    descriptors = array.array("i")
    for _, _, content in ancillary:
        descriptors.frombytes(content)
    while not data.endswith(b"\n"):
        data += connection.recv(LARGEST_REQUEST)
    return json.loads(data), list(descriptors)


def become(asked):
    """VLLM's own command line, as its console script calls it; the interpreter ends as it would."""
    os.environ.clear()
    os.environ.update(asked["env"])
    with contextlib.suppress(OSError):
        os.chdir(asked["cwd"])
    sys.argv = ["vllm", *asked["argv"]]
    # A spawned engine process would import everything again.
    context = multiprocessing.get_context
    multiprocessing.get_context = lambda *_, **__: context("fork")
    sys.exit(command_line.main())


def nurse(path, models):
    tie_children()
    warm(models)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        nursery = Nursery(listening, path.parent)
        print("preloaded", flush=True)  # noqa: T201
        while True:
            asked = nursery.turn()
            if asked is not None:
                return asked


if __name__ == "__main__":
    become(nurse(Path(sys.argv[1]), Path(sys.argv[2])))
