"""The kubelet of all fake nodes: one watch on bound pods, one :class:`Pod` each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from typing import Any

import aiohttp

from e2e.fleet.addresses import AddressBlock
from e2e.fleet.api import GONE, Api, ApiError
from e2e.fleet.nodes import NodeAgent
from e2e.fleet.pod import Pod
from e2e.fleet.process import Launch, Process

log = logging.getLogger(__name__)
PODS = "/api/v1/pods"
BOUND = "spec.nodeName!="
RETRY_SECONDS = 1.0


class Kubelet:
    """Pods of the fleet's nodes, by (namespace, name)."""

    def __init__(
        self,
        api: Api,
        nodes: NodeAgent,
        addresses: AddressBlock,
        start: Callable[[Launch], Process],
        back_off_scale: float,
    ) -> None:
        self._api, self._nodes, self._addresses = api, nodes, addresses
        self._start, self._back_off_scale = start, back_off_scale
        self._bodies: dict[str, dict[str, Any]] = {}
        self._pods: dict[str, Pod] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._removed: set[str] = set()  # by us; late events of their last status must not start them again

    @property
    def pods(self) -> Iterator[Pod]:
        return iter(list(self._pods.values()))

    def find(self, namespace: str, name: str) -> Pod:
        """The pod of this name.

        Raises:
            LookupError: none runs here.

        """
        for pod in self._pods.values():
            if pod.title == f"{namespace}/{name}":
                return pod
        raise LookupError(f"pod {namespace}/{name} does not run on this fleet")

    async def run(self) -> None:
        """List and watch for ever."""
        try:
            while True:
                try:
                    await self._follow(await self._list())
                except ApiError as error:
                    if error.status != GONE:
                        log.warning("watching pods: %s", error)
                        await asyncio.sleep(RETRY_SECONDS)
                except (aiohttp.ClientError, TimeoutError) as error:
                    log.warning("watching pods: %s", error)
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            await self._abandon(list(self._tasks))

    async def node_down(self, name: str) -> None:
        """Everything on the node is gone at once; its objects stay as they were."""
        self._nodes.down.add(name)
        await self._abandon([uid for uid, body in self._bodies.items() if body["spec"]["nodeName"] == name])

    async def node_up(self, name: str) -> None:
        await self._nodes.up(name)
        for body in list(self._bodies.values()):
            if body["spec"]["nodeName"] == name:
                self._see(body)

    async def _list(self) -> str:
        listing = await self._api.get(PODS, fieldSelector=BOUND)
        current = {item["metadata"]["uid"]: item for item in listing["items"]}
        for uid in set(self._bodies) - set(current):
            self._forget(uid)
        for body in current.values():
            self._see(body)
        return str(listing["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> None:
        while True:
            async with aclosing(self._api.watch(PODS, version, fieldSelector=BOUND, timeoutSeconds="300")) as events:
                async for event in events:
                    version = self._take(event["type"], event["object"])

    def _take(self, kind: str, body: dict[str, Any]) -> str:
        """Act on one event; returns its resource version."""
        if kind == "ERROR":
            raise ApiError(int(body.get("code", 500)), body.get("message", ""))
        if kind == "DELETED":
            self._forget(body["metadata"]["uid"])
        elif kind != "BOOKMARK":
            self._see(body)
        return str(body["metadata"]["resourceVersion"])

    def _see(self, body: dict[str, Any]) -> None:
        node = self._nodes.specs.get(body["spec"].get("nodeName", ""))
        uid = body["metadata"]["uid"]
        if node is None or uid in self._removed:
            return
        self._bodies[uid] = body
        if node.name in self._nodes.down:
            return
        if uid in self._pods:
            self._pods[uid].update(body)
        elif (body.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
            self._pods[uid] = pod = Pod(
                body,
                self._api,
                self._addresses.take(),
                self._addresses.node_address,
                node.gpu,
                self._back_off_scale,
                self._start,
            )
            self._tasks[uid] = asyncio.create_task(self._run(uid, pod))

    async def _run(self, uid: str, pod: Pod) -> None:
        try:
            await pod.run()
            self._removed.add(uid)
        finally:
            self._addresses.give_back(pod.address)
            self._pods.pop(uid, None)
            self._tasks.pop(uid, None)

    def _forget(self, uid: str) -> None:
        """The object is gone: deleted by force, or by us."""
        self._bodies.pop(uid, None)
        self._removed.discard(uid)
        if uid in self._tasks:
            self._tasks[uid].cancel()

    async def _abandon(self, uids: list[str]) -> None:
        tasks = [self._tasks[uid] for uid in uids if uid in self._tasks]
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
