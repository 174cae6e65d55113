"""One script of operations, to be run against the world and against a real API server: the answers must agree.

What is not the same in two clusters (uids, versions, times, names that are drawn) is left out of an answer; what the
real server fills in beyond the world is listed in ``FILLED_IN``, so that anything else it does comes to light.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from plimsoll.adapters.ports import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    LEASES,
    NETWORK_SERVICES,
    PODS,
    REVISIONS,
    SERVICES,
    Change,
    ClusterError,
    Kind,
    Object,
)

Answer = Any
NOBODY: Final = "11111111-1111-4111-8111-111111111111"
NAMED: Final = ("uid", "resourceVersion", "creationTimestamp", "time", "namespace", "deletionGracePeriodSeconds")
FILLED_IN: Final = frozenset(
    (
        "metadata.generation",  # of pods, since 1.33
        "spec.clusterIP",
        "spec.clusterIPs",
        "spec.internalTrafficPolicy",
        "spec.ipFamilies",
        "spec.ipFamilyPolicy",
        "spec.template.spec.securityContext",
        "spec.template.spec.containers.resources",
        "spec.template.spec.containers.imagePullPolicy",
        "status",
    )
)


class Server(Protocol):
    """The Cluster port, and what people do besides."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object: ...
    async def apply(
        self, kind: Kind, manifest: Object, manager: str, *, subresource: str = "", force: bool = True
    ) -> Object: ...
    async def create(self, kind: Kind, manifest: Object) -> Object: ...
    async def replace(self, kind: Kind, manifest: Object) -> Object: ...
    async def delete(self, kind: Kind, namespace: str, name: str, uid: str, *, version: str = "") -> None: ...
    async def version(self, kind: Kind, namespace: str | None = None) -> str: ...
    def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = ""
    ) -> AsyncIterator[Object]: ...
    def watch(self, kind: Kind, namespace: str | None, selector: str, since: str) -> AsyncIterator[Change]: ...
    async def patch(self, kind: Kind, namespace: str, name: str, change: Object, manager: str) -> Object: ...
    async def scale(self, kind: Kind, namespace: str, name: str, replicas: int) -> None: ...


def manifest(kind: Kind, namespace: str, name: str, **parts: Any) -> dict[str, Any]:
    """A manifest; ``metadata`` may be among the parts."""
    meta = {"name": name, "namespace": namespace, **parts.pop("metadata", {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **parts}


def deployment(namespace: str, image: str = "a:1", **meta: Any) -> dict[str, Any]:
    """A Deployment whose pods no node takes."""
    container = {
        "name": "vllm",
        "image": image,
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "ports": [{"containerPort": 8000, "name": "http"}],
    }
    spec = {
        "selector": {"matchLabels": {"app": "q"}},
        "template": {
            "metadata": {"labels": {"app": "q"}},
            "spec": {"containers": [container], "nodeSelector": {"no": "where"}},
        },
    }
    return manifest(DEPLOYMENTS, namespace, "q", metadata=meta, spec=spec)


def vllm(namespace: str, name: str = "v", **spec: Any) -> dict[str, Any]:
    """A VLLMService, with more or other fields."""
    chosen = {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": "NVIDIA-L40S"}, "contextTokens": 8192, **spec}
    return manifest(SERVICES, namespace, name, spec=chosen)


async def script(server: Server, namespace: str) -> dict[str, Answer]:
    """Every operation's answer, by a name for it."""
    run = _Run(server, namespace)
    for chapter in (_ownership, _conflicts, _services, _whole_objects, _watches, _workloads, _owners):
        await chapter(run)
    return run.answers


class _Run:
    def __init__(self, server: Server, namespace: str) -> None:
        self.server, self.namespace = server, namespace
        self.answers: dict[str, Answer] = {}

    async def say(self, name: str, what: Awaitable[Any]) -> Any:
        """Note what an operation answers: an object, or the error's kind."""
        try:
            found = await what
        except ClusterError as error:
            self.answers[name] = f"{type(error).__name__} {error.status}"
            return None
        self.answers[name] = plain(found) if isinstance(found, Mapping) else found
        return found

    async def eventually(self, name: str, look: Callable[[], Awaitable[Answer]], expected: Answer) -> None:
        """Look until it is so; what is seen then."""
        for _ in range(200):
            found = await look()
            if found == expected:
                break
            await asyncio.sleep(0.1)
        self.answers[name] = found

    async def names(self, kind: Kind, selector: str = "") -> list[str]:
        """Names of a kind in the namespace."""
        return sorted([obj["metadata"]["name"] async for obj in self.server.list(kind, self.namespace, selector)])


async def _ownership(run: _Run) -> None:
    """Server-side apply: fields are owned, shared, left, taken."""
    ns, server = run.namespace, run.server
    await run.say("apply creates", server.apply(DEPLOYMENTS, deployment(ns, labels={"a": "1", "b": "2"}), "us"))
    await run.say("the same again", server.apply(DEPLOYMENTS, deployment(ns, labels={"a": "1", "b": "2"}), "us"))
    await run.say("one label less", server.apply(DEPLOYMENTS, deployment(ns, labels={"a": "1"}), "us"))
    count = manifest(DEPLOYMENTS, ns, "q", spec={"replicas": 3})
    await run.say("a second manager's count", server.apply(DEPLOYMENTS, count, "us-scale"))
    await run.say("kubectl scale takes it", _scaled(server, DEPLOYMENTS, ns, "q", 2))
    await run.say("and we take it back", server.apply(DEPLOYMENTS, count, "us-scale"))
    edit = {"metadata": {"labels": {"theirs": "1", "a": "changed"}}}
    await run.say("somebody edits", server.patch(DEPLOYMENTS, ns, "q", edit, "somebody"))
    await run.say("not forced", server.apply(DEPLOYMENTS, deployment(ns, labels={"a": "1"}), "us", force=False))
    await run.say("forced", server.apply(DEPLOYMENTS, deployment(ns, labels={"a": "1"}), "us"))
    fewer = deployment(ns, labels={"a": "1"})
    fewer["spec"]["template"]["spec"]["containers"][0]["env"].pop()
    await run.say("an entry less", server.apply(DEPLOYMENTS, fewer, "us"))
    extra = {"name": "C", "value": "3"}
    more = manifest(
        DEPLOYMENTS, ns, "q", spec={"template": {"spec": {"containers": [{"name": "vllm", "env": [extra]}]}}}
    )
    await run.say("an entry of another's", server.apply(DEPLOYMENTS, more, "other"))
    await run.say("does not concern us", server.apply(DEPLOYMENTS, fewer, "us"))


async def _conflicts(run: _Run) -> None:
    """Versions and uids as preconditions."""
    ns, server = run.namespace, run.server

    def config(text: str, **meta: Any) -> dict[str, Any]:
        return manifest(CONFIG_MAPS, ns, "c", metadata=meta, data={"text": text})

    now = await server.apply(CONFIG_MAPS, config("a"), "us")
    await run.say("apply over an old version", server.apply(CONFIG_MAPS, config("b", resourceVersion="1"), "us"))
    fresh = config("b", resourceVersion=now["metadata"]["resourceVersion"])
    await run.say("apply over the present version", server.apply(CONFIG_MAPS, fresh, "us"))
    await run.say("the same version once more", server.apply(CONFIG_MAPS, fresh, "us"))
    await run.say("apply over another object", server.apply(CONFIG_MAPS, config("b", uid=NOBODY), "us"))
    gone = manifest(CONFIG_MAPS, ns, "gone", metadata={"resourceVersion": "1"}, data={})
    await run.say("apply over what is gone", server.apply(CONFIG_MAPS, gone, "us"))
    await run.say("delete another object", server.delete(CONFIG_MAPS, ns, "c", NOBODY))
    uid = now["metadata"]["uid"]
    await run.say("delete an old version", server.delete(CONFIG_MAPS, ns, "c", uid, version="1"))
    await run.say("delete what is not there", server.delete(CONFIG_MAPS, ns, "nothing", uid))
    await run.say("get what is not there", server.get(CONFIG_MAPS, ns, "nothing"))
    nowhere = manifest(CONFIG_MAPS, "no-such-namespace", "x", data={})
    await run.say("create in no namespace", server.create(CONFIG_MAPS, nowhere))
    await run.say("apply in no namespace", server.apply(CONFIG_MAPS, nowhere, "us"))


async def _services(run: _Run) -> None:
    """Our own kind: defaults, pruning, validation, generation, the two doors to an object."""
    ns, server = run.namespace, run.server
    await run.say("a service", server.apply(SERVICES, vllm(ns), "kubectl"))
    await run.say("an unknown field", server.apply(SERVICES, vllm(ns, unheardOf=1), "kubectl"))
    await run.say("no context", server.apply(SERVICES, vllm(ns, contextTokens=0), "kubectl"))
    await run.say(
        "both gpu and gpus", server.apply(SERVICES, vllm(ns, hardware={"gpu": "A", "gpus": ["B"]}), "kubectl")
    )
    await run.say("not a count", server.apply(SERVICES, vllm(ns, replicas="two"), "kubectl"))
    await run.say("a name that no Service may have", server.apply(SERVICES, vllm(ns, name="1v"), "kubectl"))
    labelled = {"metadata": {"labels": {"team": "a"}}}
    await run.say("a pod template", server.apply(SERVICES, vllm(ns, podTemplate=labelled), "kubectl"))
    await run.say("an empty one", server.apply(SERVICES, vllm(ns, podTemplate={}), "kubectl"))
    await run.say("none", server.apply(SERVICES, vllm(ns), "kubectl"))
    await run.say("and again", server.apply(SERVICES, vllm(ns, podTemplate=labelled), "kubectl"))
    await run.say("and none at once", server.apply(SERVICES, vllm(ns), "kubectl"))
    await run.say("scale in Auto", _scaled(server, SERVICES, ns, "v", 3))
    fixed = vllm(ns, scaling={"mode": "Fixed"}, replicas=2)
    await run.say("another mode", server.apply(SERVICES, fixed, "kubectl"))
    await run.say("scale in Fixed", _scaled(server, SERVICES, ns, "v", 3))
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Loading",
        "message": "it loads",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    status = manifest(SERVICES, ns, "v", status={"replicas": 1, "selector": "a=b", "conditions": [condition]})
    await run.say("its status", server.apply(SERVICES, status, "us-status", subresource="status"))
    both = vllm(ns, scaling={"mode": "Fixed"}, replicas=3)
    await run.say("its spec, with a status", server.apply(SERVICES, {**both, "status": {"replicas": 9}}, "kubectl"))
    gone = manifest(SERVICES, ns, "nobody", status={"replicas": 1})
    await run.say("status of nobody", server.apply(SERVICES, gone, "us-status", subresource="status"))
    held = {"metadata": {"annotations": {"plimsoll.dev/hold": "true"}}}
    await run.say("an annotation is no generation", server.patch(SERVICES, ns, "v", held, "kubectl-annotate"))


async def _whole_objects(run: _Run) -> None:
    """What the operator creates and replaces as a whole: a Lease, and children of the plainer kinds."""
    ns, server = run.namespace, run.server
    lease = manifest(LEASES, ns, "l", spec={"holderIdentity": "a", "leaseDurationSeconds": 15})
    made = await run.say("a Lease", server.create(LEASES, lease))
    await run.say("a second one", server.create(LEASES, lease))
    version = {"resourceVersion": made["metadata"]["resourceVersion"]}
    mine = manifest(LEASES, ns, "l", metadata=version, spec={"holderIdentity": "b", "leaseDurationSeconds": 15})
    await run.say("replaced", server.replace(LEASES, mine))
    await run.say("replaced from an old version", server.replace(LEASES, mine))
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    await run.say(
        "a Service",
        server.apply(
            NETWORK_SERVICES, manifest(NETWORK_SERVICES, ns, "s", spec={"selector": {"a": "b"}, "ports": ports}), "us"
        ),
    )
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"a": "b"}}}
    await run.say(
        "a budget", server.apply(DISRUPTION_BUDGETS, manifest(DISRUPTION_BUDGETS, ns, "p", spec=budget), "us")
    )
    data = {"plan": {"list": [{"name": "x"}], "deep": {"er": 1}}, "fingerprint": "f"}
    await run.say("a revision", server.apply(REVISIONS, manifest(REVISIONS, ns, "r", revision=1, data=data), "us"))
    await run.say("its number", server.apply(REVISIONS, manifest(REVISIONS, ns, "r", revision=2, data=data), "us"))
    other = {**data, "fingerprint": "g"}
    await run.say("its data", server.apply(REVISIONS, manifest(REVISIONS, ns, "r", revision=2, data=other), "us"))


async def _watches(run: _Run) -> None:
    """Watches: order, and objects that begin or cease to match."""
    ns, server = run.namespace, run.server
    since = await server.version(CONFIG_MAPS, ns)
    for name, labels in (("one", {"mine": "yes"}), ("two", {})):
        await server.apply(CONFIG_MAPS, manifest(CONFIG_MAPS, ns, name, metadata={"labels": labels}, data={}), "us")
    await server.patch(CONFIG_MAPS, ns, "two", {"metadata": {"labels": {"mine": "yes"}}}, "us")
    await server.patch(CONFIG_MAPS, ns, "one", {"metadata": {"labels": {"mine": None}}}, "us")
    two = await server.get(CONFIG_MAPS, ns, "two")
    await server.delete(CONFIG_MAPS, ns, "two", two["metadata"]["uid"])
    run.answers["what a watch shows"] = await _events(server.watch(CONFIG_MAPS, ns, "mine=yes", since), 4)
    run.answers["what is left"] = [name for name in await run.names(CONFIG_MAPS) if name in ("one", "two")]


async def _workloads(run: _Run) -> None:
    """Deployments become ReplicaSets and pods; a new template a second ReplicaSet."""
    ns, server = run.namespace, run.server

    async def seen() -> tuple[int, int]:
        found = await server.get(DEPLOYMENTS, ns, "q")
        return len(await run.names(PODS, "app=q")), int(found.get("status", {}).get("replicas", 0))

    async def observed() -> bool:
        found = await server.get(DEPLOYMENTS, ns, "q")
        return bool(found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"])

    # Four: one more than asked for while a second template waits for a node.
    await run.eventually("pods", seen, (4, 4))
    await server.scale(DEPLOYMENTS, ns, "q", 1)
    await run.eventually("fewer pods", seen, (2, 2))
    await server.apply(DEPLOYMENTS, deployment(ns, "c:1"), "us")
    await run.eventually("a new template", observed, True)
    await run.eventually("pods of the last two templates", seen, (2, 2))

    async def unplaced() -> list[tuple[str, str]]:
        pods = [pod async for pod in server.list(PODS, ns, "app=q")]
        return [
            (c["type"], c["reason"]) for pod in pods for c in pod["status"].get("conditions") or () if "reason" in c
        ]

    await run.eventually("no node takes it", unplaced, [("PodScheduled", "Unschedulable")] * 2)


async def _owners(run: _Run) -> None:
    """What an object owned goes with it; what somebody else owns too stays."""
    ns, server = run.namespace, run.server
    # Of a kind that the garbage collector knows from the start: a new CRD's it sees half a minute later.
    boss = await server.apply(CONFIG_MAPS, manifest(CONFIG_MAPS, ns, "boss", data={}), "us")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": boss["metadata"]["uid"]}
    for name, owners in (("owned", [reference]), ("free", [])):
        meta = {"ownerReferences": owners} if owners else {}
        await server.apply(CONFIG_MAPS, manifest(CONFIG_MAPS, ns, name, metadata=meta, data={"a": "b"}), "us")
    lost = {**reference, "uid": NOBODY, "name": "nobody"}
    await server.apply(
        CONFIG_MAPS, manifest(CONFIG_MAPS, ns, "lost", metadata={"ownerReferences": [lost]}, data={}), "us"
    )
    for kind, name in ((CONFIG_MAPS, "boss"), (DEPLOYMENTS, "q")):
        found = await server.get(kind, ns, name)
        await server.delete(kind, ns, name, found["metadata"]["uid"])

    async def left() -> list[str]:
        found = [name for name in await run.names(CONFIG_MAPS) if name in ("owned", "free", "lost")]
        return [*found, *await run.names(PODS)]

    await run.eventually("what is left of owners", left, ["free"])


async def _scaled(server: Server, kind: Kind, namespace: str, name: str, replicas: int) -> Object:
    await server.scale(kind, namespace, name, replicas)
    return await server.get(kind, namespace, name)


async def _events(changes: AsyncIterator[Change], count: int) -> list[tuple[bool, str]]:
    found = []
    async with asyncio.timeout(10):
        async for change in changes:
            found.append((change.deleted, str(change.object["metadata"]["name"])))
            if len(found) == count:
                break
    return found


def plain(obj: Mapping[str, Any]) -> dict[str, Any]:
    """An object without what differs between any two clusters, and with its owners as sets."""
    meta = {key: value for key, value in obj["metadata"].items() if key not in (*NAMED, "managedFields")}
    meta["managers"] = {
        "/".join(filter(None, (entry["manager"], entry["operation"], entry.get("subresource", "")))): sorted(
            _leaves(entry["fieldsV1"])
        )
        for entry in obj["metadata"].get("managedFields") or ()
        if entry["manager"] != "kube-controller-manager"
    }
    body = {key: value for key, value in obj.items() if key not in ("metadata", "apiVersion", "kind")}
    if "progressDeadlineSeconds" in (obj.get("spec") or {}):
        body.pop("status", None)  # the controller's, at whatever moment
        meta["annotations"] = {k: v for k, v in meta.get("annotations", {}).items() if not k.startswith("deployment.")}
    return {**body, "metadata": meta}


def _leaves(fields: Mapping[str, Any], at: str = "") -> list[str]:
    """Paths of a set of fields; that a plain map is there at all (``.`` beside its fields) says nothing."""
    found: list[str] = []
    for key, inner in fields.items():
        if key == "." and not at.rpartition(" ")[2].startswith("k:"):
            continue
        found += _leaves(inner, f"{at} {key}") if inner else [f"{at} {key}".strip()]
    return found


def differences(world: Answer, real: Answer, at: str = "") -> list[str]:
    """Where two answers differ; what the real server fills in is no difference."""
    if isinstance(world, Mapping) and isinstance(real, Mapping):
        found = []
        for key in {**world, **real}:
            path = f"{at}.{key}".strip(".")
            # What is not kept of a kind (who owns what) is empty in the world.
            if (key not in world and path in FILLED_IN) or (path == "metadata.managers" and not world[key]):
                continue
            found += differences(world.get(key), real.get(key), path)
        return found
    if isinstance(world, list) and isinstance(real, list) and len(world) == len(real):
        return [each for a, b in zip(world, real, strict=True) for each in differences(a, b, at)]
    return [] if world == real or (not world and not real) else [f"{at}: world {world!r}, real {real!r}"]
