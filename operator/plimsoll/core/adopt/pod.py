"""The pod around the engine as ``spec.model.source`` and ``spec.podTemplate``."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from plimsoll.core.adopt.arguments import Left
from plimsoll.core.audit.evidence import HUB_CACHES, Evidence
from plimsoll.core.policy import Allowed, listed
from plimsoll.core.workloads.accelerators import PRODUCT_LABELS, selector_of
from plimsoll.core.workloads.server import Server, lies_in
from plimsoll.core.workloads.tree import Tree, at, entries, part, text
from plimsoll.core.workloads.variables import LITERAL, SECRET, Variable
from plimsoll.facts import catalogue
from plimsoll.facts.engine_env import why_refused

_TOKENS: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")
_SECRET_NAME: Final = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD)$")
_PASSED: Final = ("tolerations", "priorityClassName", "runtimeClassName", "schedulerName", "topologySpreadConstraints")
_OWNERS: Final = ("serviceAccountName", "imagePullSecrets", "hostNetwork", "hostIPC", "hostPID", "nodeName")
_OURS: Final = frozenset(
    {*HUB_CACHES, *_TOKENS, "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_PORT", "VLLM_CACHE_ROOT"}
)


def model_of(evidence: Evidence) -> tuple[dict[str, Any], list[Left]]:
    """``spec.model``: the id, and where its weights come from."""
    server = evidence.server
    model = server.model or ""
    left: list[Left] = []
    revision = server.arguments.text("revision")
    token = _token(server)
    if not model.startswith("/"):
        fetched = {**({"tokenSecret": token} if token else {}), **({"revision": revision} if revision else {})}
        return {"id": model, **_cache(evidence, fetched)}, [*left, *_for_the_owner(evidence, token)]
    found = _folder(server, model.rstrip("/"))
    if found is None:
        return {"id": model.rstrip("/")}, left
    volume, inside = found
    claim = text(volume, "persistentVolumeClaim", "claimName")
    if claim is None:
        left.append(Left(f"the folder {model}", "weights are taken from a claim, the hub or an image: copy them there"))
        return {"id": model.rstrip("/")}, left
    name, guessed = _name_of(model, server.arguments.text("served_model_name"))
    if guessed:
        left.append(Left(f"the folder {model}", f"taken for {name} by its name: sizes come from that configuration"))
    return {"id": name, "source": {"pvc": {"claimName": claim, **({"path": inside} if inside else {})}}}, left


def _folder(server: Server, model: str) -> tuple[Tree, str] | None:
    """(volume, path in it) of a folder that is mounted."""
    for path, volume in sorted(server.mounts.items(), key=lambda each: -len(each[0])):
        if lies_in(model, path):
            return volume, model[len(path) :].strip("/")
    return None


def _name_of(folder: str, served: str | None) -> tuple[str, bool]:
    """(a model's name for a folder, whether the catalogue was asked by the folder's own name)."""
    base = folder.rstrip("/").rsplit("/", 1)[-1]
    known = catalogue.named(base)
    return (known or (served if served and "/" in served else base)), known is not None


def _cache(evidence: Evidence, fetched: Mapping[str, Any]) -> dict[str, Any]:
    """Where fetched weights are kept: the claim or the node's folder that is there now."""
    volume = evidence.cache_volume or {}
    claim, folder = text(volume, "persistentVolumeClaim", "claimName"), text(volume, "hostPath", "path")
    if claim:
        return {"source": {"pvc": {"claimName": claim, **fetched}}}
    if folder:
        return {"source": {"hostPath": {"path": folder, **fetched}}}
    return {"source": {"hub": dict(fetched)}} if fetched else {}


def _for_the_owner(evidence: Evidence, token: Mapping[str, str] | None) -> Iterator[Left]:
    """What the operator's owner must allow before the operator takes it (docs/pods.md)."""
    if token and not listed(token["name"], Allowed().token_secrets):
        yield Left(
            f"the token Secret {token['name']}", "its name is not one that owners allow by default: allow.tokenSecrets"
        )
    folder = text(evidence.cache_volume or {}, "hostPath", "path")
    if folder:
        yield Left(f"the node's folder {folder}", "the operator's owner must allow it: allow.hostPaths")


def _token(server: Server) -> dict[str, str] | None:
    for entry in entries(server.container, "env"):
        reference = part(entry, "valueFrom", "secretKeyRef")
        if text(entry, "name") in _TOKENS and reference:
            return {"name": text(reference, "name") or "", "key": text(reference, "key") or "token"}
    return None


def template_of(server: Server) -> tuple[dict[str, Any], list[Left]]:
    """``spec.podTemplate`` with what a service passes on, and what it does not."""
    spec: dict[str, Any] = {key: server.pod[key] for key in _PASSED if server.pod.get(key)}
    selector = {key: value for key, value in selector_of(server.pod).items() if key not in PRODUCT_LABELS}
    if selector:
        spec["nodeSelector"] = {str(key): str(value) for key, value in selector.items()}
    variables, left = _variables(server)
    if variables:
        spec["containers"] = [{"name": "vllm", "env": variables}]
    return ({"spec": spec} if spec else {}), [*left, *_left(server)]


def _variables(server: Server) -> tuple[list[dict[str, str]], list[Left]]:
    kept, left = [], []
    for name, variable in server.variables.items():
        refused = _why_not(name, variable)
        if refused is None:
            kept.append({"name": name, "value": variable.value or ""})
        elif refused:
            left.append(Left(f"variable {name}", refused))
    return kept, left


def _why_not(name: str, variable: Variable) -> str | None:
    """Why a variable is left out; empty where the service has its own; None when it is kept."""
    if name in _OURS:
        return ""
    refused = why_refused(name, engine=True)
    if refused is not None:
        return refused
    if variable.source == LITERAL and variable.value and _SECRET_NAME.search(name):
        return "a secret in plain text: put it into a Secret, and name that in spec.podTemplate"
    if variable.source == SECRET:
        return "comes from a Secret: add it to spec.podTemplate once the operator's owner lists the Secret"
    if variable.source != LITERAL or variable.value is None:
        return "its value is not in the manifest: add it to spec.podTemplate"
    return None


def _left(server: Server) -> Iterator[Left]:
    """What else is around the engine and does not come along."""
    containers = [text(each, "name") or "" for each in entries(server.pod, "containers")]
    others = [name for name in containers if name != server.container_name]
    if others:
        yield Left(f"containers {', '.join(others)}", "add those that the new pods need to spec.podTemplate")
    started = [text(each, "name") or "" for each in entries(server.pod, "initContainers")]
    if started:
        yield Left(f"init containers {', '.join(started)}", "Plimsoll fetches weights itself; add others by hand")
    for key in _OWNERS:
        if server.pod.get(key):
            yield Left(f"{key} of the pod", "may be set in spec.podTemplate where the operator's owner allows it")
    if at(server.pod, "affinity"):
        yield Left("affinity of the pod", "hardware.gpu chooses the nodes, replicas are spread; add more by hand")
    known = {"/dev/shm"}  # noqa: S108 - a path in somebody's manifest
    cached = [path for path, volume in server.mounts.items() if path not in known and "emptyDir" not in volume]
    extra = [path for path in cached if "configMap" in server.mounts[path] or "secret" in server.mounts[path]]
    if extra:
        yield Left(f"mounts {', '.join(extra)}", "add volumes and volumeMounts to spec.podTemplate")
