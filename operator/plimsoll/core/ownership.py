"""Whose is a child with our name? Pure: a live object in, a verdict out.

Never take over what somebody else made; always recognise our own, also when its labels or owner were stomped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from plimsoll.api import names

Verdict = Literal["ours", "leaving", "foreign"]


@dataclass(frozen=True)
class Ownership:
    """The verdict and, for a foreign object, whose it seems to be."""

    verdict: Verdict
    whose: str = ""


def judge(obj: Mapping[str, Any], service: str, uid: str) -> Ownership:
    """``ours``: may be applied over. ``leaving``: belonged to an earlier service of this name and is being deleted."""
    meta = obj["metadata"]
    controller = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)
    if controller:
        if controller.get("uid") == uid:
            return Ownership("leaving" if meta.get("deletionTimestamp") else "ours")
        if controller.get("kind") == names.KIND and controller.get("name") == service:
            return Ownership("leaving")
        return Ownership("foreign", f"owned by {controller.get('kind')} {controller.get('name')}")
    if meta.get("deletionTimestamp"):
        return Ownership("leaving")
    writers = obj.get("managers") or [m.get("manager") for m in meta.get("managedFields") or ()]
    if names.MANAGER_CHILDREN in writers:
        return Ownership("ours")
    return Ownership("foreign", _whose(meta, [w for w in writers if w]))


def _whose(meta: Mapping[str, Any], writers: list[str]) -> str:
    release = (meta.get("annotations") or {}).get("meta.helm.sh/release-name")
    if release:
        return f"of Helm release {release}"
    manager = (meta.get("labels") or {}).get(names.LABEL_MANAGED_BY)
    if manager:
        return f"managed by {manager}"
    return f"last written by {', '.join(sorted(set(writers)))}" if writers else "of an unknown owner"
