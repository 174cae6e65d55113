"""The kubelet's log endpoint, so that ``kubectl logs`` works: HTTPS on the node address, self-signed."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from e2e.fleet.kubelet import Kubelet
from e2e.fleet.process import Log, LogLine


class PodLogs:
    """Serves ``/containerLogs/NAMESPACE/POD/CONTAINER`` with tailLines, previous, follow, timestamps, limitBytes."""

    def __init__(self, kubelet: Kubelet, listening: socket.socket) -> None:
        self._kubelet, self._socket = kubelet, listening
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=0.3, handler_cancellation=True
        )
        await self._runner.setup()
        address = self._socket.getsockname()[0]
        await web.SockSite(self._runner, self._socket, ssl_context=_self_signed(address)).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        try:
            pod = self._kubelet.find(request.match_info["namespace"], request.match_info["pod"])
        except LookupError as error:
            return web.Response(status=404, text=str(error))
        container = pod.container(request.match_info["container"])
        if container is None:
            return web.Response(status=404, text="no such container")
        previous = request.query.get("previous") == "true"
        log = container.previous_log if previous else container.log
        if log is None:
            return web.Response(status=400, text=f"previous terminated container {container.name!r} not found")
        if request.query.get("follow") == "true":
            return await self._follow(request, log)
        return web.Response(body=_text(_selected(request, log), request))

    async def _follow(self, request: web.Request, log: Log) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(_text(_selected(request, log), request))
        position = log.written
        with suppress(ConnectionError, asyncio.CancelledError):
            while not log.closed:
                await log.wait_for_more()
                await response.write(_text(list(log.since(position)), request))
                position = log.written
        return response


def _selected(request: web.Request, log: Log) -> list[LogLine]:
    lines = list(log.since(0))
    if seconds := request.query.get("sinceSeconds"):
        oldest = datetime.now(UTC) - timedelta(seconds=int(seconds))
        lines = [line for line in lines if line.at >= oldest]
    if tail := request.query.get("tailLines"):
        lines = lines[len(lines) - min(int(tail), len(lines)) :]
    return lines


def _text(lines: Iterable[LogLine], request: web.Request) -> bytes:
    stamped = request.query.get("timestamps") == "true"
    whole = "".join(f"{line.at.isoformat()} {line.text}\n" if stamped else f"{line.text}\n" for line in lines).encode()
    return whole[: int(request.query["limitBytes"])] if "limitBytes" in request.query else whole


def _self_signed(address: str) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "plimsoll-fake-kubelet")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "kubelet.pem")
        pair.touch(mode=0o600)
        pair.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(pair)
    return context
