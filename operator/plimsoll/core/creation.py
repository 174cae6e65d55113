"""Why a pod's container does not come: the events of the pod, and of claims it waits for. Pure.

A container that waits for a volume says so nowhere in the pod's status, only in events: the kubelet's (a Secret or
ConfigMap that is not there, a mount that fails, an image being pulled), the attach controller's and the volume
controller's (no such StorageClass). Sentences as of Kubernetes 1.30 to 1.36.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from plimsoll.api import rollout_reasons as rollout
from plimsoll.api.reason import Reason
from plimsoll.core.obstacle import Obstacle
from plimsoll.core.stable_text import stable

Event = Mapping[str, Any]

MESSAGE_LIMIT: Final = 300
_ABSENT: Final = re.compile(r'\b(?P<kind>secret|configmap) "(?P<name>[^"]+)" not found')
_VOLUME: Final = re.compile(r'for volume "(?P<volume>[^"]+)"')
_KEY: Final = re.compile(r"references non-existent (?P<kind>secret|config) key: (?P<key>\S+)")
_CLASS: Final = re.compile(r'storageclass\S* "(?P<name>[^"]+)" not found')
_KINDS: Final = {"secret": "Secret", "configmap": "ConfigMap", "config": "ConfigMap"}
_GENERIC: Final = "timed out waiting for the condition"
"""The kubelet's summary of a wait: says less than the event before it."""


def of_pod(events: Iterable[Event], namespace: str) -> Obstacle | None:
    """What the newest event says that explains a wait; None when none does."""
    found = [e for e in events if e.get("reason") in _READERS]
    told = [e for e in found if _GENERIC not in str(e.get("message", ""))] or found
    newest = max(told, key=_written, default=None)
    return _READERS[newest["reason"]](str(newest.get("message", "")), namespace) if newest else None


def of_claim(claim: str, events: Iterable[Event]) -> Obstacle | None:
    """Why a volume claim is not bound, in the volume controller's words; None when it has said nothing."""
    newest = max((e for e in events if e.get("type") == "Warning"), key=_written, default=None)
    if newest is None:
        return None
    said = stable(str(newest.get("message", "")), MESSAGE_LIMIT)
    text = f"PersistentVolumeClaim {claim} is not bound: {said}"
    absent = _CLASS.search(said)
    if absent is None:
        return Obstacle(rollout.VOLUME_NOT_BOUND.name, text)
    way = f"create StorageClass {absent['name']}, or make the claim anew with one that exists"
    return Obstacle(rollout.VOLUME_NOT_BOUND.name, f"{text}; {way}", lasting=True)


def claims(template: Mapping[str, Any]) -> list[str]:
    """Names of the claims that pods of this template mount."""
    volumes = (template.get("spec") or {}).get("volumes") or ()
    return sorted(v["persistentVolumeClaim"]["claimName"] for v in volumes if v.get("persistentVolumeClaim"))


def _mount(message: str, namespace: str) -> Obstacle:
    volume = found["volume"] if (found := _VOLUME.search(message)) else ""
    of = f" (volume {volume})" if volume else ""
    if absent := _ABSENT.search(message):
        what = f"{_KINDS[absent['kind']]} {namespace}/{absent['name']}{of} does not exist"
        return _missing(f"{what}; create it, and the pods go on by themselves")
    if key := _KEY.search(message):
        what = f"the {_KINDS[key['kind']]} of volume {volume or '?'} has no key {key['key']}"
        return _missing(f"{what}; add it, or correct spec.podTemplate")
    return _passing(rollout.VOLUME_NOT_MOUNTED, message)


def _missing(text: str) -> Obstacle:
    return Obstacle(rollout.OBJECT_MISSING.name, text, lasting=True)


def _passing(reason: Reason, message: str) -> Obstacle:
    return Obstacle(reason.name, stable(message, MESSAGE_LIMIT))


def _attach(message: str, _namespace: str) -> Obstacle:
    return _passing(rollout.VOLUME_NOT_MOUNTED, message)


def _sandbox(message: str, _namespace: str) -> Obstacle:
    return _passing(rollout.CONTAINER_NOT_STARTED, message)


def _pull(message: str, _namespace: str) -> Obstacle:
    return _passing(rollout.PULLING_IMAGE, message)


_READERS: Final[Mapping[str, Callable[[str, str], Obstacle]]] = {
    "FailedMount": _mount,
    "FailedMapVolume": _mount,
    "FailedAttachVolume": _attach,
    "FailedCreatePodSandBox": _sandbox,
    "NetworkNotReady": _sandbox,
    "Pulling": _pull,
}


def _written(event: Event) -> int:
    """An event that repeats is written again, so its version tells the newest where times have whole seconds."""
    version = str(event["metadata"].get("resourceVersion", ""))
    return int(version) if version.isdecimal() else 0
