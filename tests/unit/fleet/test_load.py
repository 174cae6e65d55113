"""The load generator keeps to what it was told."""

import asyncio
import sys

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from e2e.fleet.load import LoadReport, Target, generate


async def _served(at_once: int = sys.maxsize) -> tuple[int, LoadReport]:
    """Twelve requests to a server that answers each after a moment: the most it had at a time, and the report."""
    running = most = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return web.Response(text="data: [DONE]\n\n", content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    async with TestServer(app) as server:
        target = Target(server.host, server.port or 0)
        report = await generate(lambda: [target], 1000.0, 1, 1, 0.012, at_once=at_once)
    return most, report


@pytest.mark.parametrize("at_once", [1, 4])
async def test_no_more_are_outstanding_than_were_allowed(at_once: int) -> None:
    most, report = await _served(at_once)
    assert (most, report.sent) == (at_once, 12)


async def test_without_a_limit_they_come_as_they_come() -> None:
    most, report = await _served()
    assert most > 4
    assert report.sent == 12
