"""Containers that may run vLLM, in Kubernetes' own kinds and in any other object with a pod inside."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from plimsoll.core.workloads.tree import Tree, along, at, entries, part, walk, whole

Scope = Literal["pod", "values", "operator"]
"""Where probes, grace and volumes stand: in the manifest; or in a chart's templates; or in what an operator makes."""

_TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": (),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
_WITH_TEMPLATE: Final = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Job", "ReplicationController", "Rollout", "CloneSet"}
)
OWN_KINDS: Final = _WITH_TEMPLATE | {"Pod", "CronJob"}
RUNTIMES: Final = frozenset({"ServingRuntime", "ClusterServingRuntime"})
FINISHING: Final = frozenset({"Job", "CronJob"})


@dataclass(frozen=True)
class Candidate:
    """A container of an object, and what around it decides how it runs.

    ``path``, ``pod_path``: where they stand in the object. ``nodes``: pods that work as one replica.
    """

    manifest: Tree
    container: Tree
    path: str
    pod: Tree = field(default_factory=dict)
    pod_path: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)
    scope: Scope = "pod"
    replicas: int | None = None
    replicas_path: str = ""
    nodes: int = 1
    gpus: int | None = None
    product: str | None = None
    argv: tuple[str, ...] | None = None
    """The words that the engine gets where an operator or a chart puts them together."""
    given: bool = True
    """Whether the manifest is the whole object, not a patch for one that stands elsewhere."""
    model: str | None = None


def candidates(manifest: Tree) -> list[Candidate]:
    """Containers of an object of Kubernetes' own kinds, else of whatever looks like a pod inside it."""
    kind = str(manifest.get("kind", ""))
    if kind == "LeaderWorkerSet":
        return list(_leader_workers(manifest))
    keys = _TEMPLATES.get(kind, ("spec", "template") if kind in _WITH_TEMPLATE else None)
    if keys is not None:
        return list(_of_template(manifest, part(manifest, *keys), ".".join(keys), kind))
    if kind in RUNTIMES and entries(manifest, "spec", "containers"):
        return list(containers_of(manifest, part(manifest, "spec"), "spec", scope="pod"))
    return list(_anywhere(manifest))


def _of_template(manifest: Tree, template: Tree, path: str, kind: str) -> Iterator[Candidate]:
    pod_path = f"{path}.spec" if path else "spec"
    yield from containers_of(
        manifest,
        part(template, "spec"),
        pod_path,
        labels=part(template, "metadata", "labels"),
        replicas=whole(at(manifest, "spec", "replicas")),
        replicas_path="spec.replicas",
        given=kind in {"Pod", *FINISHING} or bool(at(manifest, "spec", "selector")) or _says_images(template),
    )


def _says_images(template: Tree) -> bool:
    """A patch names containers and leaves out what its base has."""
    containers = entries(template, "spec", "containers")
    return bool(containers) and all("image" in each for each in containers)


def _leader_workers(manifest: Tree) -> Iterator[Candidate]:
    """The leader runs the server; without a leader's own template the workers' one is the leader's too."""
    group = part(manifest, "spec", "leaderWorkerTemplate")
    which = "leaderTemplate" if part(group, "leaderTemplate") else "workerTemplate"
    template, path = part(group, which), f"spec.leaderWorkerTemplate.{which}"
    yield from containers_of(
        manifest,
        part(template, "spec"),
        f"{path}.spec",
        labels=part(template, "metadata", "labels"),
        replicas=whole(at(manifest, "spec", "replicas")),
        replicas_path="spec.replicas",
        nodes=whole(group.get("size")) or 1,
    )


def containers_of(
    manifest: Tree,
    pod: Tree,
    pod_path: str,
    **rest: Any,  # noqa: ANN401 - fields
) -> Iterator[Candidate]:
    """The containers of a pod that stands at a path of the object."""
    containers = pod.get("containers")
    for index, container in enumerate(containers if isinstance(containers, list) else ()):
        if isinstance(container, Mapping):
            path = f"{pod_path}.containers[{index}]"
            yield Candidate(manifest, container, path, pod, pod_path, **rest)


def _anywhere(manifest: Tree) -> Iterator[Candidate]:
    """Pods inside objects of other kinds: whatever has a list of containers, or one main container."""
    seen: set[int] = set()
    for path, each in walk(manifest):
        if not isinstance(each.get("containers"), list) and "mainContainer" not in each:
            continue
        found = list(
            containers_of(
                manifest, each, path, scope=_scope_of(manifest, path), replicas=_replicas_above(manifest, path)
            )
        )
        main = each.get("mainContainer")
        if isinstance(main, Mapping):
            found.append(Candidate(manifest, main, f"{path}.mainContainer", each, path, scope="operator"))
        for candidate in found:
            if id(candidate.container) not in seen:
                seen.add(id(candidate.container))
                yield candidate


_WITH_DEFAULTS: Final = re.compile(r"InferenceService|Dynamo|Ray|Seldon|ServingRuntime|Workspace|LLM")
"""Kinds whose controllers add probes, volumes and the like."""


def _scope_of(manifest: Tree, path: str) -> Scope:
    """A pod template of a kind that adds nothing says all there is."""
    adds = _WITH_DEFAULTS.search(str(manifest.get("kind", "")))
    return "operator" if adds or not path.lower().endswith("template.spec") else "pod"


def _replicas_above(manifest: Tree, path: str) -> int | None:
    """The nearest ``replicas`` on the way from the root to a pod."""
    written = (whole(node.get("replicas")) for node in along(manifest, path))
    return next((own for own in reversed([*written]) if own is not None), None)
