"""A door before the lab's Prometheus: whoever asks goes through it, and it can be made to lie, hang or stay shut.

A fault of Prometheus is thus seen by all alike, and Prometheus itself goes on scraping meanwhile.
"""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from e2e.controlplane.ports import HOST

FORWARD_SECONDS: Final = 30.0
OLD_SECONDS: Final = 600.0
Result = list[dict[str, Any]]
Page = tuple[int, str, bytes]


def _each(change: Callable[[float, str], tuple[float, str]]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Change (time, value) of every element of an instant query's answer."""

    def spoil(document: dict[str, Any]) -> dict[str, Any]:
        for element in _result(document):
            if "value" in element:
                element["value"] = list(change(*element["value"]))
        return document

    return spoil


def _result(document: Mapping[str, Any]) -> Result:
    found = document.get("data")
    result = found.get("result") if isinstance(found, dict) else None
    return result if isinstance(result, list) and all(isinstance(e, dict) for e in result) else []


def _emptied(document: dict[str, Any]) -> dict[str, Any]:
    _result(document).clear()
    return document


def _halved(document: dict[str, Any]) -> dict[str, Any]:
    """Without every second pod, by name."""
    result = _result(document)
    pods = sorted({e["metric"].get("pod", "") for e in result})
    result[:] = [e for e in result if pods.index(e["metric"].get("pod", "")) % 2 == 0]
    return document


def _partial(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "warnings": ["a store did not answer"]}


_SPOILS: Final[Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "nan": _each(lambda at, _value: (at, "NaN")),
    "inf": _each(lambda at, _value: (at, "+Inf")),
    "old": _each(lambda at, value: (at - OLD_SECONDS, value)),
    "empty": _emptied,
    "half": _halved,
    "partial": _partial,
}
_PAGES: Final[Mapping[str, Page]] = {
    "html": (200, "text/html", b"<html><body>Please sign in</body></html>"),
    "error": (200, "application/json", b'{"status":"error","errorType":"internal","error":"the store is broken"}'),
    "rejected": (400, "application/json", b'{"status":"error","errorType":"bad_data","error":"unknown function"}'),
    "auth": (401, "text/plain", b"Unauthorized"),
    "busy": (503, "text/plain", b"Service Unavailable"),
}
FAULTS: Final = ("down", "hang", "differ", *_PAGES, *_SPOILS, "none")


class Door:
    """Listens at ``port`` and forwards to ``behind``, unless ``fault`` says otherwise. Blocking, in threads."""

    def __init__(self, port: int, behind: str) -> None:
        self.url = f"http://{HOST}:{port}"
        self._behind = behind
        self._fault = "none"
        self._changed = threading.Event()
        self._asked = 0
        self._server = ThreadingHTTPServer((HOST, port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="prometheus-door", daemon=True
        )

    def start(self) -> None:
        """Open it."""
        self._thread.start()

    def stop(self) -> None:
        """Close it, and let go of those that hang."""
        self.fault("none")
        self._server.shutdown()
        self._server.server_close()

    def fault(self, kind: str) -> None:
        """From now on this fault; ``none`` makes it well.

        Raises:
            ValueError: there is no such fault.
        """
        if kind not in FAULTS:
            raise ValueError(f"prometheus fault {kind!r} is not one of {', '.join(FAULTS)}")
        self._fault = kind
        changed, self._changed = self._changed, threading.Event()
        changed.set()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        door = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with suppress(OSError):
                    door.answer(self)

            do_POST = do_GET  # noqa: N815 - the base class' name

            def log_message(self, *_: object) -> None: ...

        return Handler

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """One request, with the fault of this moment."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0)) or None
        fault, changed = self._fault, self._changed
        if fault == "hang":
            changed.wait()
        if fault in ("down", "hang"):
            request.close_connection = True
            request.connection.close()
            return
        status, kind, page = _PAGES.get(fault) or self._forward(request, body)
        if fault in _SPOILS or fault == "differ":
            page = self._spoiled(fault, page)
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(page)))
        request.end_headers()
        request.wfile.write(page)

    def _spoiled(self, fault: str, page: bytes) -> bytes:
        try:
            document = json.loads(page)
        except ValueError:
            return page
        self._asked += 1
        if fault == "differ":  # two replicas behind one address: every second answer is of one that knows less
            return json.dumps(_halved(document)).encode() if self._asked % 2 else page
        return json.dumps(_SPOILS[fault](document)).encode()

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes | None) -> Page:
        headers = {k: v for k, v in request.headers.items() if k.lower() in ("content-type", "accept")}
        forwarded = urllib.request.Request(self._behind + request.path, body, headers, method=request.command)
        try:
            with urllib.request.urlopen(forwarded, timeout=FORWARD_SECONDS) as found:
                return found.status, found.headers.get("Content-Type", ""), found.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.headers.get("Content-Type", ""), refused.read()
        except OSError as error:
            return 502, "text/plain", str(error).encode()
