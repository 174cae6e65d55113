"""Whatever a Prometheus, or what stands in its place, answers: a value or a fault in its own words, in bounded time."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from plimsoll.adapters.prometheus import PrometheusSource
from plimsoll.core.sampling import Answer, Fault
from plimsoll.settings import PrometheusSettings

Reply = Callable[[BaseHTTPRequestHandler], None]
NOW = 1_800_000_000.0


def page(
    body: str | bytes, status: int = 200, kind: str = "application/json", headers: Mapping[str, str] | None = None
) -> Reply:
    """A reply with this body."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response_only(status)
        for name, value in {"Content-Type": kind, "Date": formatdate(NOW, usegmt=True), **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body if isinstance(body, bytes) else body.encode())

    return reply


def vector(*values: object, at: float = NOW, **more: object) -> str:
    result = [{"metric": {"pod": f"p{i}"}, "value": [at, value]} for i, value in enumerate(values)]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def error(kind: str, words: str) -> str:
    return json.dumps({"status": "error", "errorType": kind, "error": words})


def hang(handler: BaseHTTPRequestHandler) -> None:
    handler.server.released.wait(5)  # type: ignore[attr-defined]


def drip(handler: BaseHTTPRequestHandler) -> None:
    """An answer without end, a byte at a time: each read succeeds, the whole never does."""
    page("")(handler)
    while not handler.server.released.wait(0.05):  # type: ignore[attr-defined]
        handler.wfile.write(b" ")


@contextmanager
def serving(reply: Reply, seen: list[Any] | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if seen is not None:
                seen.append((self.path, dict(self.headers)))
            with suppress(OSError):  # the client gave up
                reply(self)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.released = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.released.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()
        server.server_close()


async def ask(url: str, **settings: Any) -> Answer | Fault:
    source = PrometheusSource(PrometheusSettings(url=url, timeout_seconds=settings.pop("timeout", 2.0), **settings))
    try:
        return await source.query("up")
    finally:
        source.close()


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        pytest.param(page(error("bad_data", "parse error: x"), 400), "rejected", "bad_data: parse error: x", id="400"),
        pytest.param(page(error("execution", "too many"), 422), "rejected", "execution: too many", id="422"),
        pytest.param(page(error("internal", "broken")), "rejected", "internal: broken", id="200 with an error"),
        pytest.param(page("Unauthorized\n", 401, "text/plain"), "auth", "401 Unauthorized): Unauthorized", id="401"),
        pytest.param(page("no tenant", 403), "auth", "403 Forbidden): no tenant", id="403"),
        pytest.param(page("<html>Sign in</html>", 200, "text/html"), "invalid", "text/html", id="a login page"),
        pytest.param(page("", 302, headers={"Location": "https://login"}), "invalid", "302 Found", id="redirect"),
        pytest.param(page("404 page not found", 404), "invalid", "404 Not Found): 404 page not found", id="404"),
        pytest.param(page("{}"), "invalid", "no answer to a query", id="JSON of something else"),
        pytest.param(page(""), "invalid", "no answer to a query", id="nothing"),
        pytest.param(page('{"status": "success", "da'), "invalid", "no answer to a query", id="half an answer"),
        pytest.param(page('{"status": "success"}'), "invalid", "not that of its query API", id="no data"),
        pytest.param(page(vector("three")), "invalid", "not that of its query API", id="a value that is a word"),
        pytest.param(page(vector().replace("vector", "matrix")), "invalid", "matrix", id="another kind of result"),
        pytest.param(page("overloaded", 503), "unreachable", "503 Service Unavailable): overloaded", id="503"),
        pytest.param(page("slow down", 429), "unreachable", "429 Too Many Requests): slow down", id="429"),
        pytest.param(page("\ufeff\0\0", 200, "image/png"), "invalid", "image/png", id="bytes"),
    ],
)  # fmt: skip
async def test_a_bad_answer_is_a_fault_with_the_servers_words(reply: Reply, kind: str, words: str) -> None:
    with serving(reply) as url:
        found = await ask(url)
    assert isinstance(found, Fault)
    assert found.kind == kind
    assert words in found.message


@pytest.mark.parametrize("reply", [hang, drip], ids=["silence", "an answer without end"])
async def test_an_answer_that_takes_too_long_is_given_up(reply: Reply) -> None:
    with serving(reply) as url:
        began = time.monotonic()
        found = await ask(url, timeout=0.5)
        assert time.monotonic() - began < 3
    assert found == Fault("unreachable", "Prometheus does not answer within 0.5 s")


async def test_nobody_listens() -> None:
    with serving(page("")) as url:
        pass
    found = await ask(url)
    assert isinstance(found, Fault)
    assert found.kind == "unreachable"
    assert "Connection refused" in found.message
    assert "0x" not in found.message  # the same words at every tick


async def test_many_queries_to_a_silent_server_end_together_and_the_next_is_answered() -> None:
    answers: list[Reply] = [hang]

    def reply(handler: BaseHTTPRequestHandler) -> None:
        answers[0](handler)

    with serving(reply) as url:
        source = PrometheusSource(PrometheusSettings(url=url, timeout_seconds=0.5))
        began = time.monotonic()
        found = await asyncio.gather(*(source.query("up") for _ in range(20)))
        assert time.monotonic() - began < 3
        assert {answer.kind for answer in found if isinstance(answer, Fault)} == {"unreachable"}
        answers[0] = page(vector("1"))
        assert isinstance(await source.query("up"), Answer)
        source.close()


async def test_values_are_numbers_or_none_at_all() -> None:
    with serving(page(vector("0.5", "NaN", "+Inf", "-1"))) as url:
        found = await ask(url)
    assert isinstance(found, Answer)
    assert [str(series.value) for series in found.series] == ["0.5", "nan", "inf", "-1.0"]
    assert found.series[1].labels == {"pod": "p1"}


async def test_nothing_found_is_an_answer() -> None:
    with serving(page(vector())) as url:
        assert await ask(url) == Answer(())


async def test_warnings_are_kept_and_hints_about_the_query_are_not() -> None:
    told = ["PromQL info: a metric might not be a counter", "store 3 did not answer"]
    with serving(page(vector("1", warnings=told))) as url:
        found = await ask(url)
    assert isinstance(found, Answer)
    assert found.warnings == ("store 3 did not answer",)


@pytest.mark.parametrize(
    ("at", "headers", "age"),
    [(NOW, {}, 0), (NOW - 600, {}, 600), (NOW + 300, {}, 0), (NOW, {"Age": "90"}, 90), (NOW, {"Date": "soon"}, 0)],
    ids=["now", "an old answer", "clocks that differ", "from a cache", "no date"],
)
async def test_an_answers_age_is_told_by_its_senders_clock(at: float, headers: dict[str, str], age: float) -> None:
    """The operator's own clock, which is years away from NOW, has no say."""
    with serving(page(vector("1", at=at), headers=headers)) as url:
        found = await ask(url)
    assert isinstance(found, Answer)
    assert found.age_seconds == age


async def test_a_token_is_read_anew_at_every_query(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    seen: list[Any] = []
    with serving(page(vector()), seen) as url:
        settings = PrometheusSettings(f"{url}/prom", token_file=str(token), headers={"X-Scope-OrgID": "team"})
        source = PrometheusSource(settings)
        await source.query("up")
        token.write_text("second\n")
        await source.query("up{}")
        source.close()
    assert [headers["Authorization"] for _, headers in seen] == ["Bearer first", "Bearer second"]
    assert {headers["X-Scope-OrgID"] for _, headers in seen} == {"team"}
    assert seen[0][0] == "/prom/api/v1/query?query=up"


async def test_a_name_and_a_password(tmp_path: Path) -> None:
    (tmp_path / "u").write_text("me")
    (tmp_path / "p").write_text("secret\n")
    seen: list[Any] = []
    with serving(page(vector()), seen) as url:
        await ask(url, username_file=str(tmp_path / "u"), password_file=str(tmp_path / "p"))
    assert seen[0][1]["Authorization"] == "Basic bWU6c2VjcmV0"


async def test_a_token_that_cannot_be_read_is_named() -> None:
    with serving(page(vector())) as url:
        found = await ask(url, token_file="/nowhere/token")
    assert found == Fault("auth", "cannot sign in to Prometheus: /nowhere/token: No such file or directory")


async def test_surroundings_do_not_change_where_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with serving(page(vector())) as url:
        assert isinstance(await ask(url), Answer)
