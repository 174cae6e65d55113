"""What one server does from its start to its end, written down; the tests ask the same of the fake and of vLLM."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from e2e.engine.subjects import NAME, Server, Subject, serving

CLOSED: Final = "closed"
READY_SECONDS: Final = 280.0
END_SECONDS: Final = 60.0
CLIENTS: Final = 24
PRESSURE_SECONDS: Final = 12.0
PROMPT_WORDS: Final = 120
OUTPUT_TOKENS: Final = 400
DRAIN_SECONDS: Final = 60
_ASK_SECONDS: Final = 120.0
_SAMPLE_SECONDS: Final = 0.25

Status = int | str
"""An HTTP status, or `closed` where nobody listens."""


@dataclass
class Life:
    """One server's life: /health over time without repetitions, answers by name, the page at three moments, the end."""

    loading: list[Status] = field(default_factory=list)
    answers: dict[str, tuple[Status, Any]] = field(default_factory=dict)
    idle_page: str = ""
    pressed: list[Mapping[str, float]] = field(default_factory=list)
    finished: list[Status] = field(default_factory=list)
    after_page: str = ""
    draining: dict[str, Status] = field(default_factory=dict)
    in_flight: list[tuple[Status, str]] = field(default_factory=list)
    ending: list[Status] = field(default_factory=list)
    exit_code: int | None = None
    left_running: int = 0
    log: str = ""


async def drained(subject: Subject, folder: Path) -> Life:
    """Load, answer, be pressed, be asked to end with requests in flight."""
    life = Life()
    arguments = [*subject.pool, "--shutdown-timeout", str(DRAIN_SECONDS)]
    with serving(subject, arguments, folder) as server:
        async with _session() as http:
            await _until_ready(http, server, life)
            await _ask_everything(http, server, life)
            life.idle_page = await _page(http, server)
            await _press(http, server, life)
            life.after_page = await _idle_page(http, server)
            await _end_in_flight(http, server, life)
        life.log = server.log
    return life


async def killed(subject: Subject, folder: Path) -> Life:
    """A short queue that overflows; then the engine dies under the API server."""
    life = Life()
    with serving(subject, [*subject.pool, "--max-num-queued-reqs", "4"], folder) as server:
        async with _session() as http:
            await _until_ready(http, server, life)
            asked = [_complete(http, server, 200) for _ in range(12)]
            life.finished = [status for status, _ in await asyncio.gather(*asked)]
            life.after_page = await _idle_page(http, server)
            await _kill_in_flight(http, server, life)
        life.log = server.log
    return life


async def refused(subject: Subject, arguments: Sequence[str], folder: Path) -> Life:
    """A start that must fail."""
    life = Life()
    with serving(subject, arguments, folder) as server:
        async with _session() as http:
            await _watch(http, server, life.loading, READY_SECONDS)
        life.exit_code, life.log = server.exit_code, server.log
    return life


async def _until_ready(http: aiohttp.ClientSession, server: Server, life: Life) -> None:
    await _watch(http, server, life.loading, READY_SECONDS, until=200)
    assert server.exit_code is None, server.log
    assert life.loading[-1] == 200, (life.loading, server.log)


async def _watch(
    http: aiohttp.ClientSession, server: Server, seen: list[Status], seconds: float, until: Status | None = None
) -> None:
    """Note each change of /health until it is `until`, the process has ended, or the time is over."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up and server.exit_code is None:
        status, _ = await _ask(http, server, "GET", "/health")
        if not seen or seen[-1] != status:
            seen.append(status)
        if status == until:
            return
        await asyncio.sleep(_SAMPLE_SECONDS)


async def _ask_everything(http: aiohttp.ClientSession, server: Server, life: Life) -> None:
    body = {"model": NAME, "prompt": "one two three", "max_tokens": 5, "ignore_eos": True}
    chat = {"model": NAME, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "ignore_eos": True}
    questions: dict[str, tuple[str, str, Any]] = {
        "health": ("GET", "/health", None),
        "ping": ("GET", "/ping", None),
        "version": ("GET", "/version", None),
        "models": ("GET", "/v1/models", None),
        "no such path": ("GET", "/no-such-path", None),
        "a wrong method": ("GET", "/v1/completions", None),
        "a completion": ("POST", "/v1/completions", body),
        "a chat": ("POST", "/v1/chat/completions", chat),
        "a stream": ("POST", "/v1/completions", {**body, "stream": True}),
        "another model": ("POST", "/v1/completions", {**body, "model": "no-such-model"}),
        "too long": ("POST", "/v1/completions", {**body, "max_tokens": 100_000}),
        "no prompt": ("POST", "/v1/completions", {"model": NAME}),
        "not an object": ("POST", "/v1/completions", "[1"),
    }
    for name, (method, path, content) in questions.items():
        life.answers[name] = await _ask(http, server, method, path, content)


async def _press(http: aiohttp.ClientSession, server: Server, life: Life) -> None:
    """More clients than the pool has room for, and a sample of the page every moment."""
    end = time.monotonic() + PRESSURE_SECONDS

    async def client() -> None:
        while time.monotonic() < end:
            status, _ = await _complete(http, server, OUTPUT_TOKENS, words=PROMPT_WORDS, stream=True)
            life.finished.append(status)

    clients = [asyncio.ensure_future(client()) for _ in range(CLIENTS)]
    while not all(each.done() for each in clients):
        with suppress(TimeoutError):
            life.pressed.append(totals(await _page(http, server)))
        await asyncio.sleep(_SAMPLE_SECONDS)
    await asyncio.gather(*clients)


async def _idle_page(http: aiohttp.ClientSession, server: Server) -> str:
    """The page once nothing runs any more."""
    give_up = time.monotonic() + END_SECONDS
    while True:
        page = await _page(http, server)
        if not totals(page)["vllm:num_requests_running"] or time.monotonic() > give_up:
            return page
        await asyncio.sleep(_SAMPLE_SECONDS)


async def _end_in_flight(http: aiohttp.ClientSession, server: Server, life: Life) -> None:
    requests = [asyncio.ensure_future(_complete(http, server, 800, stream=True)) for _ in range(2)]
    await _running(http, server, 2)
    server.terminate()
    await asyncio.sleep(1.0)
    async with _session() as fresh:
        life.draining["health"], _ = await _ask(fresh, server, "GET", "/health")
        life.draining["a completion"], _ = await _complete(fresh, server, 2)
    life.in_flight = [(status, str(text)[-60:]) for status, text in await asyncio.gather(*requests)]
    await _ended(http, server, life)


async def _kill_in_flight(http: aiohttp.ClientSession, server: Server, life: Life) -> None:
    stream = asyncio.ensure_future(_complete(http, server, 800, stream=True))
    await _running(http, server, 1)
    server.end_engine()
    await _ended(http, server, life)
    status, text = await stream
    life.in_flight = [(status, str(text)[-200:])]


async def _ended(http: aiohttp.ClientSession, server: Server, life: Life) -> None:
    processes = server.processes()
    await _watch(http, server, life.ending, END_SECONDS)
    life.exit_code = server.exit_code
    life.left_running = sum(process.is_running() and process.status() != "zombie" for process in processes)


async def _running(http: aiohttp.ClientSession, server: Server, count: int) -> None:
    give_up = time.monotonic() + END_SECONDS
    while totals(await _page(http, server))["vllm:num_requests_running"] < count:
        assert time.monotonic() < give_up, "the requests never ran"
        await asyncio.sleep(0.02)


async def _complete(
    http: aiohttp.ClientSession, server: Server, tokens: int, *, words: int = 8, stream: bool = False
) -> tuple[Status, Any]:
    body = {"model": NAME, "prompt": "w " * words, "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    return await _ask(http, server, "POST", "/v1/completions", body)


async def _page(http: aiohttp.ClientSession, server: Server) -> str:
    status, text = await _ask(http, server, "GET", "/metrics")
    assert status == 200, (status, text)
    return str(text)


async def _ask(
    http: aiohttp.ClientSession, server: Server, method: str, path: str, body: Any = None
) -> tuple[Status, Any]:
    """The status and the content, read as JSON where it is JSON."""
    data = body if isinstance(body, str) or body is None else json.dumps(body)
    headers = {"Content-Type": "application/json"} if data else {}
    try:
        async with http.request(method, server.url + path, data=data, headers=headers) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" and text else text
    except (aiohttp.ClientError, ConnectionError):
        return CLOSED, ""


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=_ASK_SECONDS)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True), timeout=timeout)


def totals(page: str) -> dict[str, float]:
    """Each series of ours by name, its labels added up."""
    found: dict[str, float] = {}
    for line in page.splitlines():
        if line.startswith("vllm:"):
            name = line.partition("{")[0].partition(" ")[0]
            found[name] = found.get(name, 0.0) + float(line.rpartition(" ")[2])
    return found
