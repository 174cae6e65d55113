"""What is left at the end, without what differs from run to run: uids, versions, times, drawn names, live figures."""

from collections import Counter
from collections.abc import Mapping
from copy import copy
from typing import Any, Final

from plimsoll.adapters.ports import DEPLOYMENTS, DISRUPTION_BUDGETS, NETWORK_SERVICES, REVISIONS, SERVICES
from plimsoll.api import names
from plimsoll.core.live import template_hash
from tests.faults.world.control_loop import ready
from tests.faults.world.managers import managers_of
from tests.faults.world.store import Object
from tests.faults.world.world import World

KEPT: Final = (SERVICES, DEPLOYMENTS, REVISIONS, NETWORK_SERVICES, DISRUPTION_BUDGETS)
_META: Final = ("name", "namespace", "labels", "annotations", "deletionTimestamp")
_STATUS: Final = (
    "replicas",
    "readyReplicas",
    "updatedReplicas",
    "availableReplicas",
    "selector",
    "summary",
)

_CONDITIONS: Final = names.CONDITIONS.keys() - {names.METRICS_AVAILABLE, names.SLO_MET, names.KV_PREDICTION_ACCURATE}
"""Those that rest on ticks of live figures say the same a few ticks later."""

_ESTIMATED: Final = ("availableKVBytes", "memory", "assumptions", "typical")
"""Of a plan: exact where a pool was observed before, fitted where not: a new process has seen none."""

State = dict[str, Any]


def state(world: World) -> State:
    """Everything that lasts: our objects, who owns which of their fields, and pods by template."""
    found: State = {}
    for kind in KEPT:
        for obj in world.api.store.all(kind):
            meta = obj["metadata"]
            found[f"{kind.kind} {meta.get('namespace')}/{meta['name']}"] = _plain(obj)
    found["pods"] = dict(Counter(_pod(pod) for pod in world.pods()))
    return found


def differences(expected: Any, found: Any, at: str = "") -> list[str]:
    """Where two states differ, one line each."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return [
            line
            for key in sorted({*expected, *found}, key=str)
            for line in differences(expected.get(key), found.get(key), f"{at} / {key}" if at else str(key))
        ]
    return [] if expected == found else [f"{at}: {_short(found)} instead of {_short(expected)}"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]}…"


def _plain(obj: Object) -> State:
    meta = obj["metadata"]
    status = obj.get("status") or {}
    return {
        "metadata": {key: copy(meta[key]) for key in _META if key in meta} | _without_hash(obj),
        "owners": [owner["name"] for owner in meta.get("ownerReferences") or ()],
        "managers": {
            f"{manager.name} {manager.operation} {manager.subresource}".strip(): sorted(map(str, paths))
            for manager, paths in managers_of(obj).items()
            if manager.name in names.MANAGERS and manager.subresource != "status"
        },
        **{key: copy(obj[key]) for key in ("spec", "revision") if key in obj},
        **({"data": {**obj["data"], "plan": _planned(obj["data"].get("plan"))}} if "data" in obj else {}),
        "status": {
            **{key: status[key] for key in _STATUS if key in status},
            "plan": _planned(status.get("plan")),
            "conditions": {
                c["type"]: (c["status"], c.get("reason"))
                for c in status.get("conditions") or ()
                if c["type"] in _CONDITIONS
            },
        },
    }


def _without_hash(obj: Object) -> State:
    """Annotations of a revision without the hash of what it keeps: that holds the plan's estimates."""
    annotations = obj["metadata"].get("annotations") or {}
    kept = {key: value for key, value in annotations.items() if key != names.ANNOTATION_HASH}
    return {"annotations": kept} if "data" in obj else {}


def _planned(plan: Mapping[str, Any] | None) -> State:
    return {key: value for key, value in (plan or {}).items() if key not in _ESTIMATED}


def _pod(pod: Object) -> str:
    state = "ready" if ready(pod) else pod["status"].get("phase", "")
    return f"{pod['metadata']['labels'].get(names.LABEL_SERVICE)} {template_hash(pod)} {state}"
