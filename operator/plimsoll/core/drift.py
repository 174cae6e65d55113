"""Whether a live object still says what we want, decided without a write.

Two questions, both pure: did our intent change (its hash, kept as an annotation on the child, catches removed fields
too), and did somebody edit what we manage (desired ⊆ live; what others add is theirs). The API server fills defaults
and normalises quantities, so plain equality would differ for ever.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from plimsoll.api import names
from plimsoll.core.quantity import quantity

MERGE_KEYS: Final = ("name", "containerPort", "mountPath", "port", "uid", "topologyKey", "type", "key")
"""The field that identifies a list's entries, first that all desired entries have (Kubernetes' own merge keys)."""


def stamp(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with the hash of its intent as an annotation."""
    meta = manifest["metadata"]
    annotations = {**meta.get("annotations", {}), names.ANNOTATION_HASH: digest(manifest)}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def decided_on(manifest: Mapping[str, Any], known: Mapping[str, Any] | None) -> dict[str, Any]:
    """The manifest, to be refused (409) if the object is not the one any more on which it was decided."""
    version = known["metadata"].get("resourceVersion") if known else None
    meta = manifest["metadata"]
    return {**manifest, "metadata": {**meta, "resourceVersion": version} if version else meta}


def digest(value: object) -> str:
    """A short stable hash of any JSON value; the order of keys does not count."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differs(desired: Mapping[str, Any], live: Mapping[str, Any]) -> str | None:
    """The path of the first field in which the live object is not what we want, or None."""
    return _first_difference(desired, live, "")


def _first_difference(desired: Any, live: Any, path: str) -> str | None:  # noqa: ANN401 - JSON
    if isinstance(desired, Mapping):
        return _mapping(desired, live, path)
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        return _sequence(desired, live, path)
    return None if _same_scalar(desired, live) else path


def _mapping(desired: Mapping[str, Any], live: Any, path: str) -> str | None:  # noqa: ANN401 - JSON
    if not desired:
        return None
    if not isinstance(live, Mapping):
        return path
    found = (_first_difference(value, live.get(key), f"{path}.{key}".lstrip(".")) for key, value in desired.items())
    return next((where for where in found if where), None)


def _sequence(desired: Sequence[Any], live: Any, path: str) -> str | None:  # noqa: ANN401 - JSON
    if not desired:
        return None
    if not isinstance(live, Sequence) or isinstance(live, str):
        return path
    key = _merge_key(desired)
    if key is not None:
        return _keyed(desired, live, key, path)
    if len(desired) != len(live):
        return path
    found = (_first_difference(d, v, f"{path}[{i}]") for i, (d, v) in enumerate(zip(desired, live, strict=True)))
    return next((where for where in found if where), None)


def _keyed(desired: Sequence[Any], live: Sequence[Any], key: str, path: str) -> str | None:
    by_key = {entry.get(key): entry for entry in live if isinstance(entry, Mapping)}
    found = (_first_difference(d, by_key.get(d[key]), f"{path}[{d[key]}]") for d in desired)
    return next((where for where in found if where), None)


def _merge_key(entries: Sequence[Any]) -> str | None:
    if not all(isinstance(entry, Mapping) for entry in entries):
        return None
    return next((key for key in MERGE_KEYS if all(key in entry for entry in entries)), None)


def _same_scalar(desired: Any, live: Any) -> bool:  # noqa: ANN401 - JSON
    if live is None:
        return not desired  # the API server drops zero values of optional fields
    if isinstance(desired, bool) or isinstance(live, bool):
        return desired is live
    if desired == live:
        return True
    wanted, found = quantity(desired), quantity(live)
    return wanted is not None and wanted == found
