"""Prometheus through prometheus-api-client. Whatever goes wrong comes back as a fault with the server's own words.

The library leaves out what a decision needs: it has no timeout, tries again, drops ``warnings``, follows redirects and
takes any page for an answer. So it is given a session that reads the whole answer under one deadline, and that looks
at status, type and form before the library does.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final

import requests
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3.util import Retry

from plimsoll.core.sampling import Answer, Fault, FaultKind, Series
from plimsoll.core.stable_text import stable
from plimsoll.settings import PrometheusSettings

THREADS: Final = 8
"""As many as a tick has queries: those of a tick that was given up end by their own deadline."""
BODY_LIMIT_BYTES: Final = 64 << 20
CHUNK_BYTES: Final = 1 << 16
WORDS_LIMIT: Final = 300
REJECTED: Final = (400, 422)
AUTH: Final = (401, 403)


class PrometheusSource:
    """Instant queries in threads of our own; ``close`` when done."""

    def __init__(self, settings: PrometheusSettings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._timeout_seconds = settings.timeout_seconds
        self._session = _Session(settings, monotonic)
        self._client = PrometheusConnect(
            settings.url,
            headers=dict(settings.headers),
            retry=Retry(total=0),
            auth=_auth(settings),
            session=self._session,
            timeout=settings.timeout_seconds,
        )
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="prometheus")

    async def query(self, promql: str) -> Answer | Fault:
        """One instant query; see the port."""
        asked = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, promql)
        try:
            async with asyncio.timeout(self._timeout_seconds + 0.5):
                return await asked
        except TimeoutError:
            return _too_late(self._timeout_seconds)

    def close(self) -> None:
        """Give up what is still asked."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _ask(self, promql: str) -> Answer | Fault:
        try:
            result = self._client.custom_query(promql)
            return _answer(result, self._session.said())
        except _FaultError as error:
            return error.fault
        except requests.exceptions.RequestException as error:
            root = _root(error)
            if isinstance(root, TimeoutError | requests.exceptions.Timeout):
                return _too_late(self._timeout_seconds)
            words = stable(str(root) or type(root).__name__, WORDS_LIMIT)
            return Fault("unreachable", f"Prometheus cannot be reached: {words}")
        except OSError as error:  # a file of the settings
            return Fault("auth", f"cannot sign in to Prometheus: {error.filename}: {error.strerror}")
        except (KeyError, TypeError, ValueError, IndexError):
            return Fault("invalid", "Prometheus answers in a form that is not that of its query API")


class _FaultError(Exception):
    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(kind, message)


class _Session(requests.Session):
    """Answers are read to their end under one deadline, and refused unless they are those of the query API."""

    def __init__(self, settings: PrometheusSettings, monotonic: Callable[[], float]) -> None:
        super().__init__()
        # Neither a proxy nor a .netrc of the process's surroundings: what is used stands in the settings.
        self.trust_env = False
        self.verify = settings.ca_file or True
        self.cert = (settings.cert_file, settings.key_file) if settings.cert_file else None
        self._timeout_seconds = settings.timeout_seconds
        self._monotonic = monotonic
        self._last = threading.local()

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:  # noqa: ANN401 - as the library calls it
        until = self._monotonic() + self._timeout_seconds
        response = super().request(*args, **{**kwargs, "stream": True, "allow_redirects": False})
        with response:
            body = self._body(response, until)
        response._content = body  # noqa: SLF001 - requests has no other way to hand on what was read in parts
        self._last.said = _Said(_checked(response, body), response.headers)
        return response

    def said(self) -> "_Said":
        """What this thread's last request was answered."""
        found: _Said = self._last.said
        return found

    def _body(self, response: requests.Response, until: float) -> bytes:
        parts, size = [], 0
        for part in response.iter_content(CHUNK_BYTES):
            parts.append(part)
            size += len(part)
            if self._monotonic() > until:
                raise requests.exceptions.ReadTimeout
            if size > BODY_LIMIT_BYTES:
                raise _FaultError("invalid", f"Prometheus answers with more than {BODY_LIMIT_BYTES >> 20} MiB")
        return b"".join(parts)


class _Said:
    """The document of an answer, and when its sender says it was sent."""

    def __init__(self, document: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        self.warnings = tuple(str(w) for w in document.get("warnings") or () if not str(w).startswith("PromQL info"))
        self._sent, self._kept = headers.get("Date", ""), headers.get("Age", "")

    def age_seconds(self, evaluated: float) -> float:
        """How old an answer evaluated then was when it was sent; both by clocks of the backend's side."""
        try:
            sent = parsedate_to_datetime(self._sent).timestamp()
        except (TypeError, ValueError):
            sent = evaluated
        kept = float(self._kept) if self._kept.isdecimal() else 0.0
        return max(0.0, sent - evaluated, kept)


class _Token(AuthBase):
    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._path.read_text().strip()}"
        return request


class _Password(AuthBase):
    def __init__(self, username: str, password: str) -> None:
        self._username, self._password = Path(username), Path(password)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        basic = HTTPBasicAuth(self._username.read_text().strip(), self._password.read_text().strip())
        signed: requests.PreparedRequest = basic(request)
        return signed


def _auth(settings: PrometheusSettings) -> AuthBase | None:
    if settings.token_file:
        return _Token(settings.token_file)
    return _Password(settings.username_file, settings.password_file) if settings.username_file else None


def _answer(result: list[Mapping[str, Any]], said: _Said) -> Answer:
    found = tuple(Series(one["metric"], float(one["value"][1])) for one in result if "value" in one)
    evaluated = next((float(one["value"][0]) for one in result if "value" in one), None)
    return Answer(found, said.age_seconds(evaluated) if evaluated is not None else 0.0, said.warnings)


def _checked(response: requests.Response, body: bytes) -> Mapping[str, Any]:
    """The document of a successful answer.

    Raises:
        _FaultError: it is none.
    """
    document = _document(body)
    status = f"{response.status_code} {response.reason or ''}".strip()
    if response.status_code in AUTH:
        raise _FaultError("auth", _words("Prometheus refuses the operator", status, document, body))
    if response.status_code in REJECTED or (response.ok and document.get("status") == "error"):
        raise _FaultError("rejected", _words("Prometheus rejects a query", status, document, body))
    if response.status_code == 429 or response.status_code >= 500:  # noqa: PLR2004 - HTTP
        raise _FaultError("unreachable", _words("Prometheus fails", status, document, body))
    if response.status_code != 200:  # noqa: PLR2004 - HTTP
        raise _FaultError("invalid", _words("the URL is not that of a Prometheus", status, document, body))
    if document.get("status") != "success":
        kind = response.headers.get("Content-Type", "no type").partition(";")[0]
        words = stable(body[:WORDS_LIMIT].decode(errors="replace"), 80)
        raise _FaultError("invalid", f"Prometheus answers with {kind} that is no answer to a query: {words}")
    if document["data"]["resultType"] != "vector":
        raise _FaultError("invalid", f"Prometheus answers with a {document['data']['resultType']}, not with a vector")
    return document


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _words(what: str, status: str, document: Mapping[str, Any], body: bytes) -> str:
    """The server's own words: Prometheus' error text, else the beginning of the page."""
    kind, error = document.get("errorType", ""), document.get("error", "")
    words = ": ".join(str(part) for part in (kind, error) if part) or body[: 2 * WORDS_LIMIT].decode(errors="replace")
    return stable(f"{what} ({status}): {words}".rstrip(": "), WORDS_LIMIT)


def _too_late(seconds: float) -> Fault:
    return Fault("unreachable", f"Prometheus does not answer within {seconds:g} s")


def _root(error: BaseException) -> BaseException:
    """The bottom of an exception's causes: what happened, without what each layer says about itself."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return error
