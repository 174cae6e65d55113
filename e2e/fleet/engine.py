"""The engine behind a fake vLLM server: what the server needs of it, and the simulator's engine in real time.

One model of an engine serves the lab, the simulator and their tests: ``plimsoll.sim.engine``, held to measured runs of
vLLM. It takes the layout as figures from the recording; neither computes one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from e2e.fleet.pool import Pool
from plimsoll.sim.blocks import BlockPool
from plimsoll.sim.counters import Counters
from plimsoll.sim.engine import EngineLimits
from plimsoll.sim.live import LiveEngine
from plimsoll.sim.requests import Request
from plimsoll.sim.steps import FittedSteps

TICK_SECONDS: Final = 0.02
"""Tokens are handed out no more often: a busy fleet must not take the machine that tests it."""
_FAR_TOKENS: Final = 1 << 24


@dataclass(frozen=True)
class Speed:
    """How fast the fake computes: an 8B-class model on an 80 GB card by default. ``time_factor`` 2: twice as fast."""

    prefill_tokens_per_second: float = 20_000
    step_seconds: float = 0.012
    step_seconds_per_request: float = 0.00005
    time_factor: float = 1.0

    @property
    def cost(self) -> FittedSteps:
        """The same as the simulator takes it."""
        return FittedSteps(
            base_seconds=self.step_seconds,
            weights_seconds=0.0,
            token_seconds=1 / self.prefill_tokens_per_second,
            context_seconds=0.0,
            prefill_seconds=0.0,
            request_seconds=self.step_seconds_per_request,
        )


class Recorder(Protocol):
    """Where an engine reports: vLLM metric names without ``vllm:`` and ``_total``."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None: ...
    def observe(self, name: str, value: float) -> None: ...


class Engine(Protocol):
    """What a server needs."""

    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def waiting_tokens(self) -> int: ...
    @property
    def usage(self) -> float: ...

    def generate(self, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[str | None, None]:
        """Yield None for every token, then the finish reason (``length`` or ``abort``)."""
        ...

    def abort_all(self) -> None: ...
    async def close(self) -> None: ...


def block_pool(pool: Pool) -> BlockPool:
    """The recorded layout as the simulator sees it: groups that keep every token, windows, states."""
    groups = pool.layout.groups
    far = [group.blocks(_FAR_TOKENS, 0) for group in groups]
    states = [not group.specs for group in groups]
    full = [not state and blocks > pool.num_blocks for blocks, state in zip(far, states, strict=True)]
    capped = [b for b, state, grows in zip(far, states, full, strict=True) if not state and not grows]
    return BlockPool(
        num_blocks=max(2, pool.num_blocks),
        block_size_tokens=pool.layout.block_tokens,
        full_groups=sum(full),
        capped_groups=tuple(capped),
        state_blocks=sum(b for b, state in zip(far, states, strict=True) if state),
    )


@dataclass(eq=False)
class _Client:
    """Who waits for a request's tokens."""

    tokens: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    handed: int = 0


class SimulatedEngine:
    """The simulator's engine against the clock. One asyncio task while there is work, none when idle."""

    def __init__(self, pool: Pool, recorder: Recorder, speed: Speed | None = None) -> None:
        self._pool, self._recorder, self._speed = block_pool(pool), recorder, speed or Speed()
        self._limits = EngineLimits(pool.max_num_seqs, pool.max_num_batched_tokens, pool.layout.prefix_caching)
        self._began = time.monotonic()
        self._clients: dict[Request, _Client] = {}
        self._loop: asyncio.Task[None] | None = None
        self._start_over()

    def _start_over(self) -> None:
        self._engine = LiveEngine(self._pool, self._limits, self._speed.cost)
        self._seen = _totals(self._engine.counters)

    @property
    def running(self) -> int:
        return self._engine.running

    @property
    def waiting(self) -> int:
        return self._engine.waiting

    @property
    def waiting_tokens(self) -> int:
        never = float("inf")
        return sum(request.prompt_tokens for request in self._clients if request.scheduled_seconds == never)

    @property
    def usage(self) -> float:
        return self._engine.usage(min(self._now(), self._engine.next_seconds))

    async def generate(self, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[str | None, None]:
        now = self._now()
        self._catch_up(now)
        request, client = Request(now, prompt_tokens, output_tokens), _Client()
        self._clients[request] = client
        self._engine.submit(request, now)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._run())
        try:
            while (reason := await client.tokens.get()) is None:
                yield None
            yield reason
        finally:
            self._forget(request)

    def abort_all(self) -> None:
        for client in self._clients.values():
            client.tokens.put_nowait("abort")
            self._recorder.count("request_success", finished_reason="abort")
        self._clients.clear()
        self._start_over()

    async def close(self) -> None:
        self.abort_all()
        if self._loop is not None:
            self._loop.cancel()
            with suppress(asyncio.CancelledError):
                await self._loop

    def _now(self) -> float:
        return (time.monotonic() - self._began) * self._speed.time_factor

    async def _run(self) -> None:
        while self._engine.outstanding:
            self._catch_up(self._now())
            self._engine.pause(self._now())
            wait = (self._engine.next_seconds - self._now()) / self._speed.time_factor
            await asyncio.sleep(max(TICK_SECONDS, min(wait, 1.0)))

    def _catch_up(self, now: float) -> None:
        """Everything that has happened by now."""
        while self._engine.next_seconds <= now:
            steps = self._engine.steps
            done = self._engine.advance()
            self._report(steps)
            for request, client in self._clients.items():
                self._hand_out(request, client)
            for request in done:
                self._finish(request)

    def _report(self, steps: int) -> None:
        """What the counters have gained, under vLLM's names."""
        before, self._seen = self._seen, _totals(self._engine.counters)
        gained = {name: self._seen[name] - before[name] for name in before}
        record = self._recorder
        for name in ("prompt_tokens", "generation_tokens", "num_preemptions"):
            record.count(name, gained[name])
        record.count("prompt_tokens_by_source", gained["prompt_tokens"], source="local_compute")
        record.count("prefix_cache_queries", gained["queried"])
        record.count("prefix_cache_hits", gained["hits"])
        for _ in range(steps):
            record.observe("iteration_tokens_total", (gained["computed"] + gained["generation_tokens"]) / steps)
        times = int(gained["itl_count"])
        for _ in range(times):
            record.observe("inter_token_latency_seconds", gained["itl_seconds"] / times / self._speed.time_factor)

    def _hand_out(self, request: Request, client: _Client) -> None:
        produced = self._engine.produced(request)
        if produced and not client.handed:
            self._recorder.observe("time_to_first_token_seconds", request.ttft_seconds / self._speed.time_factor)
        while client.handed < produced:
            client.handed += 1
            client.tokens.put_nowait(None)

    def _finish(self, request: Request) -> None:
        client = self._clients.pop(request, None)
        if client is None:
            return  # its own client has left
        client.tokens.put_nowait("length")
        self._recorder.count("request_success", finished_reason="length")
        for name, value in _request_figures(request, self._speed.time_factor).items():
            self._recorder.observe(name, value)

    def _forget(self, request: Request) -> None:
        """The client went away; nothing to do when its request is done."""
        if self._clients.pop(request, None) is not None:
            now = self._now()
            self._catch_up(now)
            self._engine.cancel(request, now)
            self._recorder.count("request_success", finished_reason="abort")


def _totals(counters: Counters) -> dict[str, float]:
    return {
        "prompt_tokens": counters.prompt_tokens,
        "generation_tokens": counters.generation_tokens,
        "num_preemptions": counters.preemptions,
        "computed": counters.prefilled_tokens,
        "queried": counters.prefix_queried_tokens,
        "hits": counters.prefix_hit_tokens,
        "itl_count": counters.itl.count,
        "itl_seconds": counters.itl.total,
    }


def _request_figures(request: Request, time_factor: float) -> dict[str, float]:
    """The per-request histograms that vLLM fills when a request ends (seconds and tokens)."""
    arrived, admitted = request.arrival_seconds, request.scheduled_seconds
    first, done = request.first_token_seconds, request.finish_seconds
    seconds = {
        "e2e_request_latency_seconds": done - arrived,
        "request_queue_time_seconds": admitted - arrived,
        "request_prefill_time_seconds": first - admitted,
        "request_decode_time_seconds": done - first,
        "request_inference_time_seconds": done - admitted,
        "request_time_per_output_token_seconds": request.tpot_seconds,
    }
    return {name: value / time_factor for name, value in seconds.items()} | {
        "request_prompt_tokens": request.prompt_tokens,
        "request_generation_tokens": request.output_tokens,
        "request_max_num_generation_tokens": request.output_tokens,
        "request_params_max_tokens": request.output_tokens,
        "request_params_n": 1,
        "request_num_preemptions": request.preemptions,
        "request_prefill_kv_computed_tokens": request.prompt_tokens,
    }
