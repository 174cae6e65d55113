"""The few Kubernetes calls a kubelet makes, over aiohttp with the credentials of a kubeconfig."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

Object = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
WRITES_AT_ONCE = 32
TLS_CLOSE_SECONDS = 0.1  # aiohttp closes TLS transports after close() has returned
NOT_FOUND, CONFLICT, GONE = 404, 409, 410


class ApiError(Exception):
    """The API server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Credentials:
    server: str
    context: ssl.SSLContext | None
    token: str | None


def read_kubeconfig(path: Path) -> Credentials:
    """Server, trust and identity of the current context."""
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    tls = _tls(cluster, user, path.parent) if cluster["server"].startswith("https") else None
    return Credentials(cluster["server"].rstrip("/"), tls, user.get("token"))


def _named(entries: list[Object], name: str) -> Object:
    return next(entry for entry in entries if entry["name"] == name)


def _tls(cluster: Object, user: Object, folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif authority := _content(cluster, "certificate-authority", folder):
        context.load_verify_locations(cadata=authority)
    certificate, key = _content(user, "client-certificate", folder), _content(user, "client-key", folder)
    if certificate and key:
        with tempfile.TemporaryDirectory() as scratch:
            pair = Path(scratch, "pair.pem")
            pair.write_text(certificate + "\n" + key)
            context.load_cert_chain(pair)
    return context


def _content(entry: Object, name: str, folder: Path) -> str | None:
    if inline := entry.get(f"{name}-data"):
        return base64.b64decode(inline).decode()
    return (folder / entry[name]).read_text() if entry.get(name) else None


class Api:
    """One session to one API server; writes are bounded, watches are not."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        token = self._credentials.token
        self._session = aiohttp.ClientSession(
            base_url=self._credentials.server,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            connector=aiohttp.TCPConnector(ssl=self._credentials.context or True, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(TLS_CLOSE_SECONDS)

    async def get(self, path: str, **query: str) -> Object:
        return await self._call("GET", path, query=query)

    async def create(self, path: str, body: Mapping[str, Any]) -> Object:
        return await self._call("POST", path, body=body)

    async def patch(self, path: str, body: Mapping[str, Any], kind: str = STRATEGIC_PATCH) -> Object:
        return await self._call("PATCH", path, body=body, content_type=kind)

    async def delete(self, path: str, body: Mapping[str, Any] | None = None) -> Object:
        return await self._call("DELETE", path, body=body or {})

    async def watch(self, path: str, resource_version: str, **query: str) -> AsyncGenerator[Object, None]:
        """Events from ``resource_version`` on, until the server ends the stream."""
        params = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": resource_version, **query}
        async with self._open.get(path, params=params) as response:
            await _raise_for(response)
            buffer = bytearray()
            async for chunk in response.content.iter_any():
                buffer += chunk
                *lines, rest = buffer.split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    yield json.loads(line)

    @property
    def _open(self) -> aiohttp.ClientSession:
        assert self._session is not None, "use Api as an async context manager"
        return self._session

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        data = json.dumps(body) if body is not None else None
        headers = {"Content-Type": content_type}
        timeout = aiohttp.ClientTimeout(total=30)
        async with (
            self._writes,
            self._open.request(method, path, params=query, data=data, headers=headers, timeout=timeout) as response,
        ):
            await _raise_for(response)
            answer: Object = await response.json()
            return answer


async def _raise_for(response: aiohttp.ClientResponse) -> None:
    if response.status >= 400:
        raise ApiError(response.status, (await response.text())[:500])
