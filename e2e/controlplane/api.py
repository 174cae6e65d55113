"""The few requests the kit itself makes: health probes, RBAC of its own accounts, service-account tokens."""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

TIMEOUT_SECONDS: Final = 10.0
# Loopback only: a proxy of the environment must not get to see these.
_NO_PROXY: Final = urllib.request.ProxyHandler({})


class ApiError(RuntimeError):
    """The API server refused. `code` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Api:
    """One server as one user."""

    url: str
    ca: Path
    token: str | None = None

    def get(self, path: str) -> dict[str, Any]:
        return self._request("GET", path)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._request("POST", path, body)

    def probe(self, path: str) -> Callable[[], bool]:
        """A question to ask again and again: does this path answer with success by now?"""

        def answers() -> bool:
            try:
                with self._open(urllib.request.Request(self.url + path, headers=self._headers())):
                    return True
            except urllib.error.HTTPError as refusal:
                refusal.close()
                return False
            except (OSError, http.client.HTTPException):
                return False

        return answers

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self._headers(), method=method)
        try:
            with self._open(request) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as refusal:
            with refusal:
                text = refusal.read().decode(errors="replace")
            raise ApiError(refusal.code, f"{method} {path}: {refusal.code}: {text}") from None

    def _headers(self) -> dict[str, str]:
        authorization = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Content-Type": "application/json", **authorization}

    def _open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(self.ca)))
        opener = urllib.request.build_opener(_NO_PROXY, tls)
        response: http.client.HTTPResponse = opener.open(request, timeout=TIMEOUT_SECONDS)
        return response
