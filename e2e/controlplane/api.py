"""The few requests the kit itself makes: health probes, RBAC of its own accounts, service-account tokens."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import urllib3

TIMEOUT_SECONDS: Final = 10.0
REFUSED: Final = 400
# A kept connection that the server has closed meanwhile is no answer: ask once more.
_ONCE_MORE: Final = urllib3.Retry(total=1, backoff_factor=0, redirect=0)


@lru_cache(maxsize=8)
def _connections(ca: Path) -> urllib3.PoolManager:
    """Kept open: who polls would else pay for a handshake with every question. No proxy of the environment is asked."""
    return urllib3.PoolManager(ca_certs=str(ca), timeout=TIMEOUT_SECONDS, retries=_ONCE_MORE, maxsize=8)


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
                return self._answer("GET", path).status < REFUSED
            except OSError:
                return False

        return answers

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self._answer(method, path, None if body is None else json.dumps(body).encode())
        if answer.status >= REFUSED:
            text = answer.data.decode(errors="replace")
            raise ApiError(answer.status, f"{method} {path}: {answer.status}: {text}")
        found: dict[str, Any] = json.loads(answer.data)
        return found

    def _answer(self, method: str, path: str, data: bytes | None = None) -> urllib3.BaseHTTPResponse:
        try:
            return _connections(self.ca).request(method, self.url + path, body=data, headers=self._headers())
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(f"{method} {self.url}{path}: {error}") from error

    def _headers(self) -> dict[str, str]:
        authorization = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Content-Type": "application/json", **authorization}
