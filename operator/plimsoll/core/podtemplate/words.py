"""The sentences of a refusal, and where in a template something stands."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from plimsoll.api.podtemplate import PodTemplate
from plimsoll.core.manifests.container import CONTAINER

AT: Final = "spec.podTemplate"
WHO: Final = "the operator's owner can change that in the pod policy, key"
_LONGEST_SHOWN: Final = 80

Object = Mapping[str, Any]


def plain(template: PodTemplate) -> dict[str, Any]:
    """The template as the user wrote it, with the short forms at their place in the container ``vllm``."""
    found: dict[str, Any] = template.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec = found.get("spec", {})
    short = {key: spec.pop(key) for key in ("env", "envFrom", "volumeMounts", "resources") if key in spec}
    if short:
        spec["containers"] = [{"name": CONTAINER, **short}, *spec.get("containers", ())]
    return found


def containers(spec: Object) -> Iterator[tuple[str, Object]]:
    """Each container with its path, init containers too."""
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind, ()):
            yield f"{AT}.spec.{kind}[{container['name']}]", container


def one_of(values: Sequence[str]) -> str:
    """What is allowed, in words."""
    return ", ".join(values) if values else "none"


def owners(where: str, value: object, allowed: str, setting: str) -> str:
    """Refused by the owner's policy; ``setting`` is the key that would allow it."""
    return f"{where}: {_shown(value)} is not allowed (allowed: {allowed}); {WHO} allow.{setting}"


def decided(where: str, value: object, who: str) -> str:
    """Belongs to Plimsoll, and another field decides."""
    return f"{where}: {_shown(value)} cannot be set here; decided by {who}"


def taken(where: str, value: object, free: str) -> str:
    """Belongs to Plimsoll; ``free`` is what does not."""
    return f"{where}: {_shown(value)} belongs to Plimsoll; allowed: {free}"


def _shown(value: object) -> str:
    text = json.dumps(value) if isinstance(value, bool | Mapping | list | tuple) else str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"
