"""The engine behind a fake vLLM server: what the server needs of it, and a simple one that fulfils it.

:class:`SimpleEngine` has continuous batching with one pool of blocks, first-come admission of whole prompts and
preemption by recomputation, as vLLM 0.32 schedules, at a fixed prefill rate and step time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from e2e.fleet.pool import Pool


@dataclass(frozen=True)
class Speed:
    """How fast the fake computes: an 8B-class model on an 80 GB card by default."""

    prefill_tokens_per_second: float = 20_000
    step_seconds: float = 0.012
    step_seconds_per_request: float = 0.0001


class Recorder(Protocol):
    """Where an engine reports: vLLM metric names without ``vllm:`` and ``_total``."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None: ...
    def observe(self, name: str, value: float) -> None: ...


class Engine(Protocol):
    """What a server needs. A simulator may take :class:`SimpleEngine`'s place."""

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


@dataclass(eq=False)
class _Request:
    prompt_tokens: int
    output_tokens: int
    arrived: float
    tokens: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    computed: int = 0
    generated: int = 0
    held_blocks: int = 0
    preemptions: int = 0
    admitted_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None

    @property
    def to_compute(self) -> int:
        """Prompt and what was generated before a preemption."""
        return self.prompt_tokens + self.generated


class SimpleEngine:
    """One asyncio task while there is work, none when idle."""

    def __init__(self, pool: Pool, recorder: Recorder, speed: Speed | None = None) -> None:
        self._pool, self._recorder, self._speed = pool, recorder, speed or Speed()
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._usable = max(1, pool.num_blocks - 1)
        self._loop: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def waiting_tokens(self) -> int:
        return sum(request.prompt_tokens for request in self._waiting)

    @property
    def usage(self) -> float:
        return sum(request.held_blocks for request in self._running) / self._usable

    async def generate(self, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[str | None, None]:
        request = _Request(prompt_tokens, output_tokens, time.monotonic())
        self._waiting.append(request)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._run())
        try:
            while (reason := await request.tokens.get()) is None:
                yield None
            yield reason
        finally:
            self._forget(request)

    def abort_all(self) -> None:
        for request in [*self._running, *self._waiting]:
            request.tokens.put_nowait("abort")
            self._recorder.count("request_success", finished_reason="abort")
        self._running.clear()
        self._waiting.clear()

    async def close(self) -> None:
        self.abort_all()
        if self._loop is not None:
            self._loop.cancel()
            with suppress(asyncio.CancelledError):
                await self._loop

    async def _run(self) -> None:
        while self._running or self._waiting:
            preempted = self._grow()
            if not preempted:
                self._admit()
            prefilled = self._schedule_prefill()
            decoding = [request for request in self._running if request.computed >= request.to_compute]
            await asyncio.sleep(self._step_seconds(prefilled, len(decoding)))
            self._recorder.observe("iteration_tokens_total", prefilled + len(decoding))
            for request in decoding:
                if request in self._running:  # it may have left during the step
                    self._token(request)

    def _step_seconds(self, prefilled: int, decoding: int) -> float:
        speed = self._speed
        prefill = prefilled / speed.prefill_tokens_per_second
        return speed.step_seconds + prefill + decoding * speed.step_seconds_per_request

    def _grow(self) -> bool:
        """Give every running request the block of its next token; the last come makes room when there is none."""
        preempted = False
        for request in list(self._running):
            needed = self._pool.blocks_held(request.to_compute + 1)
            while request in self._running and needed - request.held_blocks > self._free:
                self._preempt(self._running[-1])
                preempted = True
            request.held_blocks = max(needed, request.held_blocks) if request in self._running else 0
        return preempted

    def _preempt(self, victim: _Request) -> None:
        if len(self._running) == 1:  # alone and still too long for the pool: nobody can make room
            self._finish(victim, "length")
            return
        self._running.remove(victim)
        victim.held_blocks = victim.computed = 0
        victim.preemptions += 1
        self._waiting.appendleft(victim)
        self._recorder.count("num_preemptions")

    def _admit(self) -> None:
        """First come, first served; a prompt that does not fit stops the line (``scheduler_reserve_full_isl``)."""
        while self._waiting and len(self._running) < self._pool.max_num_seqs:
            needed = self._pool.blocks_held(self._waiting[0].to_compute + 1)
            if needed > self._free and self._running:
                return
            request = self._waiting.popleft()
            request.held_blocks = needed
            request.admitted_at = request.admitted_at or time.monotonic()
            self._running.append(request)

    def _schedule_prefill(self) -> int:
        """Chunked prefill: decodes take a token each, prompts share the rest of the budget."""
        budget = left = max(1, self._pool.max_num_batched_tokens - len(self._running))
        for request in self._running:
            chunk = min(left, request.to_compute - request.computed)
            request.computed += chunk
            left -= chunk
        return budget - left

    def _token(self, request: _Request) -> None:
        now = time.monotonic()
        request.generated += 1
        request.computed += 1
        if request.first_token_at is None or request.last_token_at is None:
            request.first_token_at = now
            self._recorder.observe("time_to_first_token_seconds", now - request.arrived)
            self._count_prompt(request)
        else:
            self._recorder.observe("inter_token_latency_seconds", now - request.last_token_at)
        request.last_token_at = now
        self._recorder.count("generation_tokens")
        request.tokens.put_nowait(None)
        if request.generated >= request.output_tokens:
            self._finish(request, "length")

    def _count_prompt(self, request: _Request) -> None:
        self._recorder.count("prompt_tokens", request.prompt_tokens)
        self._recorder.count("prompt_tokens_by_source", request.prompt_tokens, source="local_compute")
        self._recorder.count("prefix_cache_queries", request.prompt_tokens)

    def _finish(self, request: _Request, reason: str) -> None:
        self._running.remove(request)
        request.tokens.put_nowait(reason)
        self._recorder.count("request_success", finished_reason=reason)
        for name, value in _request_figures(request, time.monotonic()).items():
            self._recorder.observe(name, value)

    def _forget(self, request: _Request) -> None:
        """The client went away, or the request is done and in neither list."""
        for requests in (self._running, self._waiting):
            if request in requests:
                requests.remove(request)
                self._recorder.count("request_success", finished_reason="abort")

    @property
    def _free(self) -> int:
        return self._usable - sum(request.held_blocks for request in self._running)


def _request_figures(request: _Request, now: float) -> dict[str, float]:
    """The per-request histograms that vLLM fills when a request ends (seconds and tokens)."""
    admitted = request.admitted_at or now
    first = request.first_token_at or now
    gaps = max(1, request.generated - 1)
    return {
        "e2e_request_latency_seconds": now - request.arrived,
        "request_queue_time_seconds": admitted - request.arrived,
        "request_prefill_time_seconds": first - admitted,
        "request_decode_time_seconds": now - first,
        "request_inference_time_seconds": now - admitted,
        "request_time_per_output_token_seconds": (now - first) / gaps,
        "request_prompt_tokens": request.prompt_tokens,
        "request_generation_tokens": request.generated,
        "request_max_num_generation_tokens": request.generated,
        "request_params_max_tokens": request.output_tokens,
        "request_params_n": 1,
        "request_num_preemptions": request.preemptions,
        "request_prefill_kv_computed_tokens": request.prompt_tokens,
    }
