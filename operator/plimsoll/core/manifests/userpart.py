"""The owner's defaults and the user's template in the pod, with what Kubernetes would otherwise leave to chance."""

from typing import Any, Final

from plimsoll.api.podtemplate import PodTemplate
from plimsoll.core.manifests.container import CONTAINER
from plimsoll.core.manifests.merge import merged
from plimsoll.core.podtemplate.words import plain

_VISIBLE_GPUS: Final = "NVIDIA_VISIBLE_DEVICES"
_RIGHTS: Final[dict[str, Any]] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

Manifest = dict[str, Any]


def with_template(base: Manifest, template: PodTemplate | None, *, restricted: bool) -> Manifest:
    """The pod template ``base`` with another's fields. ``restricted``: further containers give up rights, too."""
    if template is None:
        return base
    theirs = plain(template)
    spread = base["spec"]["topologySpreadConstraints"][0]
    places = [_place(each, spread) for each in theirs.get("spec", {}).get("topologySpreadConstraints", ())]
    if places:
        theirs = {**theirs, "spec": {**theirs["spec"], "topologySpreadConstraints": places}}
    found = merged(base, theirs)
    spec = _without_gpus(found["spec"])
    return {**found, "spec": _with_rights(spec) if restricted else spec}


def beside_engines(base: Manifest, theirs: Manifest) -> Manifest:
    """A pod template without an engine with another's fields: it sees no GPU and gives up rights."""
    found = merged(base, theirs)
    return {**found, "spec": _with_rights(_without_gpus(found["spec"]))}


def _place(entry: Manifest, ours: Manifest) -> Manifest:
    """What is left out of a spread is as in ours; a spread over a key of ours replaces it."""
    return {**ours, **entry}


def _with_rights(spec: Manifest) -> Manifest:
    """Containers beside the engine's as the level Restricted asks, where they do not say otherwise."""
    kinds = [kind for kind in ("containers", "initContainers") if kind in spec]
    return {**spec, **{kind: [_limited(each) for each in spec[kind]] for kind in kinds}}


def _without_gpus(spec: Manifest) -> Manifest:
    """Containers beside the engine's see no GPU, unless they were allowed to say otherwise.

    Images made for CUDA set the variable to ``all``, and NVIDIA's runtime then shows them every GPU of the node.
    """
    kinds = [kind for kind in ("containers", "initContainers") if kind in spec]
    return {
        **spec,
        **{kind: [each if each["name"] == CONTAINER else _blind(each) for each in spec[kind]] for kind in kinds},
    }


def _blind(container: Manifest) -> Manifest:
    env = container.get("env", [])
    if any(each["name"] == _VISIBLE_GPUS for each in env):
        return container
    return {**container, "env": [*env, {"name": _VISIBLE_GPUS, "value": "void"}]}


def _limited(container: Manifest) -> Manifest:
    return {**container, "securityContext": merged(_RIGHTS, container.get("securityContext", {}))}
