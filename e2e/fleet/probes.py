"""Container probes: really sent to the pod's port, with the pod's periods, thresholds, time-outs and delays."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any

Probe = Mapping[str, Any]
_ANY_CERTIFICATE = ssl.create_default_context()
_ANY_CERTIFICATE.check_hostname = False
_ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE


async def check(probe: Probe, address: str, ports: Mapping[str, int], say: Callable[[str], None]) -> bool:
    """One attempt; False on refusal, error status or time-out."""
    timeout = probe.get("timeoutSeconds") or 1
    try:
        async with asyncio.timeout(timeout):
            if "httpGet" in probe:
                return await _http(probe["httpGet"], address, ports)
            if "tcpSocket" in probe:
                return await _tcp(probe["tcpSocket"], address, ports)
    except (OSError, TimeoutError, ValueError, KeyError):
        return False
    say(f"fleet: cannot run exec or gRPC probe {dict(probe)}; taken as success")
    return True


async def run(probe: Probe, attempt: Callable[[], Any], report: Callable[[bool], None]) -> None:
    """Attempt for ever, reporting each flip: True after ``successThreshold``, False after ``failureThreshold``.

    The first attempt comes after ``initialDelaySeconds``, as in the kubelet; the others every ``periodSeconds``.
    """
    await asyncio.sleep(probe.get("initialDelaySeconds") or 0)
    wanted = {True: probe.get("successThreshold") or 1, False: probe.get("failureThreshold") or 3}
    last, streak = None, 0
    while True:
        result: bool = await attempt()
        last, streak = result, streak + 1 if result == last else 1
        if streak == wanted[result]:
            report(result)
        await asyncio.sleep(probe.get("periodSeconds") or 10)


async def _tcp(action: Mapping[str, Any], address: str, ports: Mapping[str, int]) -> bool:
    _, writer = await asyncio.open_connection(action.get("host") or address, _port(action["port"], ports))
    writer.close()
    return True


async def _http(action: Mapping[str, Any], address: str, ports: Mapping[str, int]) -> bool:
    """GET; 200 to 399 is success."""
    host, port = action.get("host") or address, _port(action["port"], ports)
    tls = _ANY_CERTIFICATE if action.get("scheme") == "HTTPS" else None
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.36", "Connection": "close"}
        headers |= {header["name"]: header["value"] for header in action.get("httpHeaders") or ()}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"GET {action.get('path') or '/'} HTTP/1.1\r\n{head}\r\n".encode())
        status = (await reader.readline()).split()
        return len(status) > 1 and 200 <= int(status[1]) < 400
    finally:
        writer.close()


def _port(port: int | str, ports: Mapping[str, int]) -> int:
    return port if isinstance(port, int) else ports[port]
