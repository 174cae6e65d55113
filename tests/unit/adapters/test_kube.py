"""The adapter against a server that answers as an API server does on bad days."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.ports import (
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    NETWORK_SERVICES,
    OPTIONAL,
    POD_MONITORS,
    PODS,
    SERVICES,
    ClusterError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    Kind,
    NotFoundError,
    UnreachableError,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MANIFEST: dict[str, Any] = {"metadata": {"name": "x", "namespace": "ns"}, "spec": {}}


@asynccontextmanager
async def serving(handler: Handler, timeout_seconds: float = 5) -> AsyncIterator[KubeCluster]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    cluster = KubeCluster(Configuration(host=f"http://{host}:{port}"), timeout_seconds)
    try:
        yield cluster
    finally:
        await cluster.close()
        await runner.cleanup()


def answering(status: int, body: str, **headers: str) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return handle


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (422, InvalidError),
        (429, UnreachableError),
        (500, UnreachableError),
        (503, UnreachableError),
    ],
)
async def test_each_refusal_is_an_error_of_its_kind(status: int, error: type[ClusterError]) -> None:
    async with serving(answering(status, '{"message": "because"}')) as cluster:
        with pytest.raises(error, match=f"{status} because") as caught:
            await cluster.apply(DEPLOYMENTS, MANIFEST, "plimsoll")
    assert caught.value.status == status


async def test_a_field_that_kubernetes_does_not_have_is_no_outage() -> None:
    """The API server answers an apply of it with 500: to try again would be silent for ever."""
    said = "failed to create typed patch object (ns/x; apps/v1, Kind=Deployment): .spec.paths: field not declared"
    async with serving(answering(500, json.dumps({"message": said}))) as cluster:
        with pytest.raises(InvalidError, match="field not declared"):
            await cluster.apply(DEPLOYMENTS, MANIFEST, "plimsoll")


async def test_the_servers_wish_to_wait_is_kept() -> None:
    async with serving(answering(429, "{}", Retry_After="7")) as cluster:
        with pytest.raises(UnreachableError) as caught:
            await cluster.get(SERVICES, "ns", "x")
    assert caught.value.retry_after_seconds == 7


async def test_a_proxys_html_page_is_no_traceback() -> None:
    async with serving(answering(502, "<html>bad gateway</html>")) as cluster:
        with pytest.raises(UnreachableError, match="bad gateway"):
            await cluster.get(SERVICES, "ns", "x")


async def test_no_answer_in_time_is_unreachable_and_remembered() -> None:
    enough = asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        await enough.wait()
        return web.Response()

    async with serving(silent, timeout_seconds=0.05) as cluster:
        with pytest.raises(UnreachableError, match="no answer from the API server"):
            await cluster.get(SERVICES, "ns", "x")
        assert cluster.silent_seconds() > 0
        enough.set()


async def test_a_refusal_is_an_answer() -> None:
    async with serving(answering(404, "{}")) as cluster:
        cluster._failing = True
        with pytest.raises(NotFoundError):
            await cluster.get(SERVICES, "ns", "x")
        assert cluster.silent_seconds() == 0


async def test_an_apply_says_who_and_what() -> None:
    seen: dict[str, Any] = {}

    async def handle(request: web.Request) -> web.Response:
        seen.update(method=request.method, path=request.path, query=dict(request.query), type=request.content_type)
        seen["body"] = json.loads(await request.text())
        return web.json_response(seen["body"])

    counted: list[str] = []
    async with serving(handle) as cluster:
        cluster._count_write = counted.append
        await cluster.apply(SERVICES, MANIFEST, "plimsoll-status", subresource="status")
    assert seen["method"] == "PATCH"
    assert seen["path"] == "/apis/plimsoll.dev/v1alpha1/namespaces/ns/vllmservices/x/status"
    assert seen["query"] == {"fieldManager": "plimsoll-status", "force": "true"}
    assert seen["type"] == "application/apply-patch+yaml"
    assert seen["body"] == MANIFEST
    assert counted == ["vllmservices"]


async def test_a_listing_follows_its_pages() -> None:
    async def handle(request: web.Request) -> web.Response:
        page = request.query.get("continue")
        items = [{"metadata": {"name": "b" if page else "a"}}]
        return web.json_response({"metadata": {} if page else {"continue": "more"}, "items": items})

    async with serving(handle) as cluster:
        names = [obj["metadata"]["name"] async for obj in cluster.list(NETWORK_SERVICES, "ns")]
    assert names == ["a", "b"]


async def test_deleting_what_is_gone_is_fine_and_names_the_very_object() -> None:
    bodies: list[dict[str, Any]] = []

    async def handle(request: web.Request) -> web.Response:
        bodies.append(json.loads(await request.text()))
        return web.json_response({"message": "not found"}, status=404)

    async with serving(handle) as cluster:
        await cluster.delete(DEPLOYMENTS, "ns", "x", "uid-1")
    assert bodies[0]["preconditions"] == {"uid": "uid-1"}


async def test_a_watch_gives_changes_passes_over_bookmarks_and_says_when_it_is_too_old() -> None:
    pod = {"metadata": {"name": "p", "resourceVersion": "5"}}
    events = [
        {"type": "ADDED", "object": pod},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "6"}}},
        {"type": "DELETED", "object": pod},
        {"type": "ERROR", "object": {"code": 410, "message": "too old"}},
    ]

    async def handle(request: web.Request) -> web.Response:
        assert request.query["resourceVersion"] == "4"
        return web.Response(text="\n".join(map(json.dumps, events)) + "\n")

    seen: list[tuple[bool, str]] = []

    async def follow(cluster: KubeCluster) -> None:
        async for change in cluster.watch(PODS, None, "a=b", "4"):
            seen.append((change.deleted, change.object["metadata"]["name"]))  # noqa: PERF401 - kept when it raises

    async with serving(handle) as cluster:
        with pytest.raises(GoneError):
            await follow(cluster)
    assert seen == [(False, "p"), (True, "p")]


async def test_whether_a_kind_is_served() -> None:
    resources = '{"resources": [{"name": "vllmservices"}]}'
    async with serving(answering(200, resources)) as cluster:
        assert await cluster.served(SERVICES)
    async with serving(answering(200, '{"resources": []}')) as cluster:
        assert not await cluster.served(SERVICES)
    async with serving(answering(404, "{}")) as cluster:
        assert not await cluster.served(SERVICES)


def _aggregated(*served: Kind) -> dict[str, Any]:
    """As the API server answers, with a group of nobody's interest among them."""
    groups = [("batch", "v1", "jobs"), *((kind.group, kind.version, kind.plural) for kind in served)]
    items = [
        {"metadata": {"name": group}, "versions": [{"version": version, "resources": [{"resource": plural}]}]}
        for group, version, plural in groups
    ]
    return {"kind": "APIGroupDiscoveryList", "items": items}


async def test_which_kinds_are_served_is_one_request_and_no_answer_twice() -> None:
    served, asked = [LEADER_WORKER_SETS], []

    async def handle(request: web.Request) -> web.Response:
        asked.append((request.path, request.headers.get("If-None-Match")))
        etag = f'"{len(served)}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304)
        assert "as=APIGroupDiscoveryList" in request.headers["Accept"]
        return web.json_response(_aggregated(*served), headers={"ETag": etag})

    async with serving(handle) as cluster:
        assert await cluster.which_served(OPTIONAL) == {LEADER_WORKER_SETS}
        assert await cluster.which_served(OPTIONAL) == {LEADER_WORKER_SETS}
        served.append(POD_MONITORS)
        assert await cluster.which_served(OPTIONAL) == {LEADER_WORKER_SETS, POD_MONITORS}
    assert asked == [("/apis", None), ("/apis", '"1"'), ("/apis", '"1"')]


async def test_a_group_alone_is_not_a_kind() -> None:
    probes = {"version": "v1", "resources": [{"resource": "probes"}]}
    other = {
        "kind": "APIGroupDiscoveryList",
        "items": [{"metadata": {"name": POD_MONITORS.group}, "versions": [probes]}],
    }
    async with serving(answering(200, json.dumps(other))) as cluster:
        assert await cluster.which_served([POD_MONITORS]) == frozenset()


async def test_an_old_server_is_asked_kind_by_kind() -> None:
    async def handle(request: web.Request) -> web.Response:
        if request.path == "/apis":
            return web.json_response({"kind": "APIGroupList", "groups": []})
        if request.path == f"/apis/{LEADER_WORKER_SETS.api_version}":
            return web.json_response({"resources": [{"name": LEADER_WORKER_SETS.plural}]})
        return web.json_response({}, status=404)

    async with serving(handle) as cluster:
        assert await cluster.which_served(OPTIONAL) == {LEADER_WORKER_SETS}
