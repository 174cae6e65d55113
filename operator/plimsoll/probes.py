"""The operator's own HTTP: /healthz, /readyz and /metrics.

Alive is: the loop beats and a sweep was attempted. Only readiness needs the API server to answer; an API outage must
not become a crash loop.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Check = Callable[[], str | None]
"""What is wrong, in a sentence, or None."""


def _probe(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_request: web.Request) -> web.Response:
        wrong = check()
        return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)

    return answer


def application(
    alive: Check, ready: Check, registry: CollectorRegistry, refresh: Callable[[], None]
) -> web.Application:
    """The probe server's application. ``refresh`` sets gauges just before they are read."""

    async def metrics(_request: web.Request) -> web.Response:
        refresh()
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", _probe(alive))
    app.router.add_get("/readyz", _probe(ready))
    app.router.add_get("/metrics", metrics)
    return app


async def serve(app: web.Application, host: str, port: int) -> web.AppRunner:
    """Serve until ``cleanup`` of the returned runner; OSError when the port is taken."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
