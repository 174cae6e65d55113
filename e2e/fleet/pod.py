"""One pod on a fake node: its containers, its address, its status, its end."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import aiohttp

from e2e.fleet import podstatus, references
from e2e.fleet.api import CONFLICT, NOT_FOUND, Api, ApiError
from e2e.fleet.container import Container, Surroundings
from e2e.fleet.gpus import Gpu
from e2e.fleet.nodes import timestamp
from e2e.fleet.process import Faults, Launch, Log, Process

log = logging.getLogger(__name__)
DEFAULT_GRACE_SECONDS = 30
RETRY_SECONDS = 1.0
SLOW_LOAD_FACTOR = 20.0
POD_FAULTS = ("crash", "oom", "image", "hang", "slow-load")
_VARIABLE = re.compile(r"\$\((\w+)\)")


class Pod:
    """Runs from the first sight of a bound pod until its object is gone or its node is."""

    def __init__(
        self,
        body: dict[str, Any],
        api: Api,
        address: str,
        node_address: str,
        gpu: Gpu | None,
        back_off_scale: float,
        start: Callable[[Launch], Process],
    ) -> None:
        self.body, self.address, self.faults = body, address, Faults()
        self._api, self._node_address, self._gpu, self._start = api, node_address, gpu, start
        self._begun = datetime.now(UTC)
        self._dirty, self._deleted = asyncio.Event(), asyncio.Event()
        self._sent: dict[str, Any] | None = None
        around = Surroundings(
            pod_name=self.title,
            address=address,
            restart_policy=body["spec"].get("restartPolicy", "Always"),
            grace_seconds=_grace(body["spec"].get("terminationGracePeriodSeconds")),
            back_off_scale=back_off_scale,
            faults=self.faults,
            start=self._launch,
            lacks=self._lacks,
            changed=self._dirty.set,
        )
        restarts = _restarts(body)
        spec = body["spec"]
        inits = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
        self.sidecars = [Container(c, around, restarts.get(c["name"], 0)) for c in inits]
        self.containers = [Container(c, around, restarts.get(c["name"], 0)) for c in spec["containers"]]

    @property
    def title(self) -> str:
        return f"{self.body['metadata']['namespace']}/{self.body['metadata']['name']}"

    @property
    def ready(self) -> bool:
        up = all(container.ready for container in self.containers) and not self._deleted.is_set()
        return up and podstatus.gates_open(self.body)

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.body["metadata"].get("labels") or {}
        return labels

    def container(self, name: str) -> Container | None:
        return next((c for c in [*self.containers, *self.sidecars] if c.name == name), None)

    def update(self, body: dict[str, Any]) -> None:
        self.body = body
        if body["spec"].get("readinessGates"):
            self._dirty.set()
        if body["metadata"].get("deletionTimestamp"):
            self._deleted.set()

    async def run(self) -> None:
        """Until the pod is deleted (and its object removed)."""
        self.update(self.body)
        everything = [*self.containers, *self.sidecars]
        publishing = asyncio.create_task(self._publish())
        self._dirty.set()
        running: list[asyncio.Task[None]] = []
        try:
            if await self._mount():
                running = [asyncio.create_task(container.run()) for container in everything]
            await self._deleted.wait()
            self._dirty.set()
            grace = _grace(self.body["metadata"].get("deletionGracePeriodSeconds"))
            await asyncio.gather(*(container.stop(grace) for container in everything))
            await asyncio.gather(*running)
        except asyncio.CancelledError:
            await asyncio.gather(*(container.abandon() for container in everything))
            await asyncio.gather(*running, return_exceptions=True)
            raise
        finally:
            publishing.cancel()
            for task in running:
                task.cancel()
        await self._remove()

    async def fault(self, kind: str) -> None:
        """One of :data:`POD_FAULTS`, on the first container."""
        container = self.containers[0]
        if kind == "crash":
            container.crash()
        elif kind == "oom":
            container.kill("OOMKilled")
        elif kind == "image":
            self.faults.image_absent = True
            container.kill()
        elif kind == "hang":
            self.faults.hang = True
        else:
            self.faults.slow_load_factor = SLOW_LOAD_FACTOR
            container.kill()

    async def _mount(self) -> bool:
        """Until every volume is there, saying in events what is not; False when the pod is deleted first."""
        told = ""
        while lacking := await self._missing(references.of_volumes(self.body["spec"])):
            if lacking != told:
                await self._tell("FailedMount", lacking)
                told = lacking
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._deleted.wait()
            if self._deleted.is_set():
                return False
        return not self._deleted.is_set()

    async def _lacks(self, container: Mapping[str, Any]) -> str:
        return await self._missing(references.of_environment(container))

    async def _missing(self, wanted: Iterator[references.Reference]) -> str:
        try:
            return await references.missing(self._api, self.body["metadata"]["namespace"], wanted)
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("what %s refers to: %s", self.title, error)
            return f"failed to sync: {error}"

    async def _tell(self, reason: str, message: str) -> None:
        """A warning about the pod, as `kubectl describe` shows it."""
        meta, now = self.body["metadata"], timestamp(datetime.now(UTC))
        event = {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", **{k: meta[k] for k in ("name", "namespace", "uid")}},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "kubelet"},
        }
        try:
            await self._api.create(f"/api/v1/namespaces/{meta['namespace']}/events", event)
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("event of %s: %s", self.title, error)

    async def _publish(self) -> None:
        """Patch the status whenever it differs from what was last sent."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            status = self._status()
            if status == self._sent:
                continue
            try:
                await self._api.patch(f"{self._path}/status", {"metadata": self._identity, "status": status})
                self._sent = status
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                if isinstance(error, ApiError) and error.status in {NOT_FOUND, CONFLICT}:
                    return
                log.warning("status of %s: %s", self.title, error)
                self._dirty.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _remove(self) -> None:
        """Last status, then the object: what a kubelet does when every container has ended."""
        while True:
            try:
                await self._api.patch(f"{self._path}/status", {"metadata": self._identity, "status": self._status()})
                body = {"gracePeriodSeconds": 0, "preconditions": self._identity}
                await self._api.delete(self._path, body)
            except ApiError as error:
                if error.status in {NOT_FOUND, CONFLICT}:
                    return
                log.warning("removing %s: %s", self.title, error)
            except (aiohttp.ClientError, TimeoutError) as error:
                log.warning("removing %s: %s", self.title, error)
            else:
                return
            await asyncio.sleep(RETRY_SECONDS)

    def _status(self) -> dict[str, Any]:
        known = {"spec": self.body["spec"], "status": self._told()}
        now = datetime.now(UTC)
        return podstatus.build(
            known, self.containers, self.sidecars, self.address, self._node_address, self._begun, now
        )

    def _told(self) -> dict[str, Any]:
        """What was last sent, and the conditions that others have set for its readiness gates."""
        seen: dict[str, Any] = self.body.get("status") or {}
        gates = {gate["conditionType"] for gate in self.body["spec"].get("readinessGates") or ()}
        others = [c for c in seen.get("conditions") or () if c["type"] in gates]
        sent = self._sent or seen
        return {**sent, "conditions": [*(sent.get("conditions") or ()), *others]}

    @property
    def _identity(self) -> dict[str, str]:
        return {"uid": self.body["metadata"]["uid"]}

    @property
    def _path(self) -> str:
        meta = self.body["metadata"]
        return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"

    def _launch(self, spec: Mapping[str, Any], output: Log) -> Process:
        env = self._environment(spec, output)
        limits = (spec.get("resources") or {}).get("limits") or {}
        return self._start(
            Launch(
                image=spec["image"],
                command=tuple(_expand(word, env) for word in spec.get("command") or ()),
                args=tuple(_expand(word, env) for word in spec.get("args") or ()),
                env=env,
                address=self.address,
                gpu=self._gpu,
                visible_gpus=int(limits.get("nvidia.com/gpu", 0)),
                log=output,
                faults=self.faults,
            )
        )

    def _environment(self, spec: Mapping[str, Any], output: Log) -> dict[str, str]:
        """Literal values and downward fields; Secrets and ConfigMaps are not read."""
        meta = self.body["metadata"]
        fields = {
            "metadata.name": meta["name"],
            "metadata.namespace": meta["namespace"],
            "metadata.uid": meta["uid"],
            "status.podIP": self.address,
            "spec.nodeName": self.body["spec"]["nodeName"],
        }
        env: dict[str, str] = {}
        for entry in spec.get("env") or ():
            source = (entry.get("valueFrom") or {}).get("fieldRef")
            if source:
                env[entry["name"]] = fields.get(source["fieldPath"], "")
            elif "valueFrom" in entry:
                output.write(f"fleet: env {entry['name']} comes from {sorted(entry['valueFrom'])}: left empty")
            else:
                env[entry["name"]] = _expand(entry.get("value") or "", env)
        return env


def _restarts(body: Mapping[str, Any]) -> dict[str, int]:
    """A container that some kubelet started before is a restart now."""
    status = body.get("status") or {}
    known = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return {c["name"]: c["restartCount"] + 1 for c in known if c.get("containerID")}


def _grace(seconds: int | None) -> float:
    return float(DEFAULT_GRACE_SECONDS if seconds is None else seconds)


def _expand(text: str, env: Mapping[str, str]) -> str:
    """``$(NAME)`` as a kubelet expands it; unknown names stay as written."""
    return _VARIABLE.sub(lambda match: env.get(match[1], match[0]), text)
