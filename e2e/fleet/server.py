"""The HTTP side of a fake vLLM: health, metrics, models and completions on the pod's address."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from e2e.fleet import metrics_page
from e2e.fleet.engine import Engine
from e2e.fleet.metrics_page import MetricsPage
from e2e.fleet.pool import Pool
from e2e.fleet.process import Faults
from e2e.fleet.vllm_args import EngineArgs

Handler = Any
DEFAULT_OUTPUT_TOKENS = 16


@dataclass(frozen=True)
class _Ask:
    """One completion request, reduced to what the engine needs."""

    prompt_tokens: int
    output_tokens: int
    stream: bool
    usage: bool
    chat: bool


class VllmServer:
    """One engine's API server. ``draining`` refuses new work with 500 as vLLM 0.32 does; ``dead`` makes /health 503."""

    def __init__(
        self, args: EngineArgs, pool: Pool, engine: Engine, page: MetricsPage, faults: Faults, version: str
    ) -> None:
        self._args, self._pool, self._engine, self._page = args, pool, engine, page
        self._faults, self._version = faults, version
        self.draining = self.dead = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def start(self, address: str, port: int) -> None:
        """Open the port.

        Raises:
            OSError: somebody else listens there.

        """
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ping", self._health),
                web.get("/version", self._version_page),
                web.get("/metrics", self._metrics),
                web.get("/v1/models", self._models),
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._completions),
            ]
        )
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=0.3, handler_cancellation=True
        )
        await self._runner.setup()
        self._listening = socket.create_server((address, port))
        await web.SockSite(self._runner, self._listening).start()

    async def close_port(self) -> None:
        """Stop listening; open connections go on."""
        for site in list(self._runner.sites) if self._runner else []:
            # What was accepted just before the port closes, asyncio would drop unclosed: it asserts that it is open.
            asyncio.get_running_loop().remove_reader(self._listening)
            try:
                await asyncio.sleep(0)
            finally:
                await site.stop()

    async def stop(self) -> None:
        await self.close_port()
        if self._runner is not None:
            await self._runner.cleanup()

    async def idle(self) -> None:
        """Wait until no completion is in flight."""
        if self._in_flight:
            await self._idle.wait()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._faults.hang:
            await asyncio.Event().wait()
        key = self._args["api_key"]
        keys = key if isinstance(key, list) else [key]
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if key and request.path.startswith("/v1") and bearer not in keys:
            return web.json_response({"error": "Unauthorized"}, status=401)
        try:
            response: web.StreamResponse = await handler(request)
        except web.HTTPException as error:
            return web.json_response({"detail": error.reason}, status=error.status)
        return response

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.dead else 200)

    async def _version_page(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self._version})

    async def _models(self, _: web.Request) -> web.Response:
        card = {
            "id": self._args.served_name,
            "object": "model",
            "owned_by": "vllm",
            "root": self._args.model,
            "max_model_len": self._pool.max_model_len,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def _metrics(self, _: web.Request) -> web.Response:
        kind = self._faults.metrics
        if kind == "absent" or self._args["disable_log_stats"]:
            return web.Response(status=404 if kind == "absent" else 200)
        text = self._page_now()
        if kind == "stale":
            self._faults.stale_page = text = self._faults.stale_page or metrics_page.stamped(text)
        change = {
            "nan": metrics_page.not_a_number,
            "old-names": metrics_page.old_names,
            "duplicate": metrics_page.duplicated,
        }.get(kind or "")
        return web.Response(text=change(text) if change else text, headers={"Content-Type": PROMETHEUS_TEXT})

    def _page_now(self) -> str:
        engine, page = self._engine, self._page
        page.gauge("num_requests_running", engine.running)
        page.gauge("num_requests_waiting", engine.waiting)
        page.gauge("num_requests_waiting_by_reason", engine.waiting, reason="capacity")
        page.gauge("kv_cache_usage_perc", engine.usage)
        page.gauge("engine_sleep_state", 1, sleep_state="awake")
        return page.render()

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        if self.dead or self.draining:
            reason = "EngineDeadError" if self.dead else "cannot schedule new futures after shutdown"
            return _error(500, reason)
        try:
            body = await request.json()
            ask = _ask(body, self._pool.max_model_len, chat="chat" in request.path)
        except ValueError as error:
            return _error(400, str(error), "BadRequestError")
        asked = body.get("model") or self._args.served_name
        if asked not in (names := self._args["served_model_name"] or [self._args.model]):
            aliases = ", ".join(names)
            return _error(404, f"The model `{asked}` does not exist. Valid aliases: {aliases}.", "NotFoundError")
        full = self._queue_full(ask)
        if full:
            self._page.count("admission_rejections", reason=full)
            return _error(503, "engine is currently busy")
        self._in_flight += 1
        self._idle.clear()
        try:
            async with aclosing(self._engine.generate(ask.prompt_tokens, ask.output_tokens)) as tokens:
                return await (self._stream(request, ask, tokens) if ask.stream else self._whole(ask, tokens))
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    def _queue_full(self, ask: _Ask) -> str | None:
        """The request limit counts waiting and running, the token limit waiting prompts."""
        requests, tokens = self._args["max_num_queued_reqs"], self._args["max_num_queued_tokens"]
        if requests is not None and self._engine.waiting + self._engine.running >= requests:
            return "max_num_queued_reqs"
        if tokens is not None and self._engine.waiting_tokens + ask.prompt_tokens > tokens:
            return "max_num_queued_tokens"
        return None

    async def _whole(self, ask: _Ask, tokens: AsyncIterator[str | None]) -> web.Response:
        produced, reason = 0, "length"
        async for token in tokens:
            reason = token or reason
            produced += token is None
        if self.dead:
            return _error(500, "EngineDeadError")
        text = " word" * produced
        answer = {"message": {"role": "assistant", "content": text}} if ask.chat else {"text": text}
        return web.json_response(self._body(ask, {"index": 0, "finish_reason": reason} | answer, produced))

    async def _stream(self, request: web.Request, ask: _Ask, tokens: AsyncIterator[str | None]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        produced = 0
        async for reason in tokens:
            produced += reason is None
            if reason == "abort" and self.dead:
                await response.write(_event({"error": {"message": "EngineDeadError", "code": 500}}))
                break
            text = " word" if reason is None else ""
            answer = {"delta": {"content": text}} if ask.chat else {"text": text}
            await response.write(_event(self._body(ask, {"index": 0, "finish_reason": reason} | answer, None)))
        if ask.usage:
            await response.write(_event(self._body(ask, None, produced)))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _body(self, ask: _Ask, choice: Mapping[str, Any] | None, produced: int | None) -> dict[str, Any]:
        kind = "chat.completion" if ask.chat else "text_completion"
        body: dict[str, Any] = {
            "id": f"cmpl-{id(ask):x}",
            "object": kind if produced is not None or not ask.chat else f"{kind}.chunk",
            "created": int(time.time()),
            "model": self._args.served_name,
            "choices": [choice] if choice else [],
        }
        if produced is not None:
            total = ask.prompt_tokens + produced
            usage = {"prompt_tokens": ask.prompt_tokens, "completion_tokens": produced, "total_tokens": total}
            body["usage"] = usage
        return body


PROMETHEUS_TEXT = "text/plain; version=1.0.0; charset=utf-8"


def cache_config(pool: Pool, args: EngineArgs) -> dict[str, str]:
    """The labels of ``vllm:cache_config_info`` whose values this engine decides."""
    layout = pool.layout
    return {
        "num_gpu_blocks": str(pool.num_blocks),
        "block_size": str(layout.block_tokens),
        "effective_attention_block_size": str(layout.block_tokens),
        "kv_cache_size_tokens": str(pool.size_tokens),
        "kv_cache_max_concurrency": str(pool.max_concurrency),
        "kv_cache_memory_bytes": str(args["kv_cache_memory_bytes"]),
        "cache_dtype": layout.cache_dtype,
        "gpu_memory_utilization": str(args["gpu_memory_utilization"]),
        "enable_prefix_caching": str(args["enable_prefix_caching"] is not False and layout.prefix_caching),
        "mamba_block_size": str(layout.mamba_block_tokens),
        "mamba_page_size_padded": str(layout.mamba_page_bytes),
        "mamba_cache_mode": layout.mamba_cache_mode,
        "mamba_ssm_cache_dtype": str(args["mamba_ssm_cache_dtype"]),
        "user_specified_block_size": str("block_size" in args.given),
    }


def _ask(body: Any, max_model_len: int, *, chat: bool) -> _Ask:
    """Token counts of a request; a text counts a token a word.

    Raises:
        ValueError: the prompt and output do not fit the model's length.

    """
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")  # noqa: TRY004 - becomes HTTP 400 with the others
    prompt = body.get("messages") if chat else body.get("prompt")
    tokens = _count(prompt)
    if not prompt:
        raise ValueError("Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)")
    output = int(body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_OUTPUT_TOKENS)
    if tokens + output > max_model_len:
        raise ValueError(
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {output} output "
            f"tokens and your prompt contains {tokens} input tokens."
        )
    usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return _Ask(max(1, tokens), max(1, output), bool(body.get("stream")), usage, chat)


def _count(prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(prompt.split())
    if isinstance(prompt, list):
        return sum(1 if isinstance(item, int) else _count(item) for item in prompt)
    return _count(prompt.get("content")) if isinstance(prompt, dict) else 0


def _event(body: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()


def _error(status: int, message: str, kind: str = "error") -> web.Response:
    return web.json_response({"error": {"message": message, "type": kind, "code": status}}, status=status)
