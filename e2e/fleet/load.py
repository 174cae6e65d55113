"""A load generator: streaming completions to Ready pods at a steady rate, with what clients saw."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

REQUEST_TIMEOUT_SECONDS = 600
# Nothing of an answer came: a draining engine, or a connection that ended while it was idle.
UNANSWERED = frozenset({"HTTP 500", "ServerDisconnectedError", "ClientOSError", "ClientConnectionResetError"})


@dataclass(frozen=True)
class Target:
    """One Ready pod's completions endpoint."""

    address: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"


@dataclass
class LoadReport:
    """Counts and latencies (seconds) of one run; ``failures`` and requests ``asked_again`` by kind."""

    sent: int = 0
    succeeded: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    asked_again: Counter[str] = field(default_factory=Counter)
    ttft_seconds: list[float] = field(default_factory=list)
    itl_seconds: list[float] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "succeeded": self.succeeded,
            "failures": dict(self.failures),
            "askedAgain": dict(self.asked_again),
            "ttftSeconds": quantiles(self.ttft_seconds),
            "itlSeconds": quantiles(self.itl_seconds),
        }


def quantiles(values: Sequence[float]) -> dict[str, float | None]:
    """Median and tail by nearest rank; None where nothing was measured."""
    ordered = sorted(values)
    if not ordered:
        return {"p50": None, "p95": None, "p99": None}
    return {f"p{q}": round(ordered[min(len(ordered) - 1, len(ordered) * q // 100)], 4) for q in (50, 95, 99)}


async def generate(
    targets: Callable[[], Sequence[Target]],
    rate: float,
    prompt_tokens: int,
    output_tokens: int,
    seconds: float,
    *,
    keep_alive: bool = True,
    ask_again: bool = False,
    at_once: int = sys.maxsize,
    enough: Callable[[LoadReport], bool] = lambda _: False,
) -> LoadReport:
    """``rate`` requests a second for ``seconds``, each to the target with the fewest outstanding; waits for all.

    No more than ``at_once`` are outstanding: the next waits until one is answered, as clients that each wait do.

    Without ``keep_alive`` every request has a connection of its own, which a Service may send to another pod. With
    ``ask_again`` a request that got nothing of an answer is sent once more, over a new connection. No more is sent once
    it is ``enough``.
    """
    report, outstanding, slots = LoadReport(), Counter[Target](), asyncio.Semaphore(at_once)
    async with _session(keep_alive) as kept, _session(keep_alive=False) as fresh, asyncio.TaskGroup() as group:
        sessions = [kept, fresh] if ask_again else [kept]
        begun = time.monotonic()
        for number in range(max(1, int(rate * seconds))):
            if (early := begun + number / rate - time.monotonic()) > 0:  # who is late does not wait for the loop too
                await asyncio.sleep(early)
            await slots.acquire()
            if enough(report):
                break
            report.sent += 1
            ready = targets()
            if not ready:
                report.failures["no ready pod"] += 1
                slots.release()
                continue
            target = min(ready, key=lambda candidate: outstanding[candidate])
            asked = group.create_task(_one(sessions, target, outstanding, (prompt_tokens, output_tokens), report))
            asked.add_done_callback(lambda _: slots.release())
    await asyncio.sleep(0)
    return report


def _session(keep_alive: bool) -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=not keep_alive), timeout=timeout)


async def _one(
    sessions: Sequence[aiohttp.ClientSession],
    target: Target,
    outstanding: Counter[Target],
    tokens: tuple[int, int],
    report: LoadReport,
) -> None:
    """One try a session, as long as nothing of an answer came."""
    failure: str | None = None
    outstanding[target] += 1
    for session in sessions:
        if failure:
            report.asked_again[failure] += 1
        failure = await _try(session, target, tokens, report)
        if failure not in UNANSWERED:
            break
    outstanding[target] -= 1
    if failure:
        report.failures[failure] += 1
    else:
        report.succeeded += 1


async def _try(
    session: aiohttp.ClientSession, target: Target, tokens: tuple[int, int], report: LoadReport
) -> str | None:
    """What went wrong, or None."""
    body = {"prompt": [0] * tokens[0], "max_tokens": tokens[1], "ignore_eos": True, "stream": True}
    sent = time.monotonic()
    try:
        response = await session.post(f"{target.url}/v1/completions", json=body)
    except (aiohttp.ClientError, TimeoutError) as error:
        return type(error).__name__
    async with response:
        if response.status != 200:
            return f"HTTP {response.status}"
        try:
            return await _read(response, sent, report)
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"{type(error).__name__} in the answer"


async def _read(response: aiohttp.ClientResponse, sent: float, report: LoadReport) -> str | None:
    """The streamed answer to its end, with the times of its tokens."""
    last, reason, first = sent, None, True
    async for line in response.content:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[len(b"data: ") :])
        if "error" in event:
            return "stream error"
        reason = event["choices"][0]["finish_reason"]
        if reason is None:
            now = time.monotonic()
            (report.ttft_seconds if first else report.itl_seconds).append(now - (sent if first else last))
            first, last = False, now
    return None if reason == "length" else f"finish {reason}"


def _main() -> None:
    """Load on one address, such as a Service's; the report as a line of JSON. SIGUSR1 ends it early."""
    parser = argparse.ArgumentParser(description=_main.__doc__)
    parser.add_argument("address")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--rate", type=float, default=10.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--at-least", type=int, default=0, help="requests, also when asked to end early")
    parser.add_argument("--prompt", type=int, default=100, help="tokens")
    parser.add_argument("--output", type=int, default=50, help="tokens")
    parser.add_argument("--keep-alive", action="store_true", help="keep connections; what fails there is asked again")
    report = asyncio.run(_one_address(parser.parse_args()))
    sys.stdout.write(f"{json.dumps(report.as_dict())}\n")


async def _one_address(given: argparse.Namespace) -> LoadReport:
    asked_to_end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, asked_to_end.set)
    target = Target(given.address, given.port)
    return await generate(
        lambda: [target],
        given.rate,
        given.prompt,
        given.output,
        given.seconds,
        keep_alive=given.keep_alive,
        ask_again=given.keep_alive,
        enough=lambda report: asked_to_end.is_set() and report.sent >= given.at_least,
    )


if __name__ == "__main__":
    _main()
