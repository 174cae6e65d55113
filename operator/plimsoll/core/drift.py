"""Whether a live object still says what we want, decided without a write.

Two questions, both pure: did our intent change (its hash, kept as an annotation on the child, catches removed fields
too), and did somebody edit what we manage (desired ⊆ live; what others add is theirs). The API server fills defaults
and normalises quantities, so plain equality would differ for ever.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from plimsoll.api import names
from plimsoll.core.quantity import quantity

MERGE_KEYS: Final = ("name", "containerPort", "mountPath", "port", "uid", "topologyKey", "type", "key")
"""The field that identifies a list's entries, first that all desired entries have (Kubernetes' own merge keys)."""

WHOLE_MAPS: Final = ("selector", "matchLabels", "labelSelector", "nodeSelector")
"""Maps that the API server keeps as one value: what somebody adds to one changes what it says (a Service that selects
nothing any more), and is not theirs. Source: ``x-kubernetes-map-type: atomic`` in the schemas of what we make."""

Path = tuple[str, ...]
"""Steps to a field; an entry of a list is ``[key]``."""


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
    """The first field in which the live object is not what we want, as people write it, or None."""
    found = next(differences(desired, live), None)
    return None if found is None else written(found)


def differences(desired: Any, live: Any, at: Path = ()) -> Iterator[Path]:  # noqa: ANN401 - JSON
    """Paths of all fields in which the live object is not what we want."""
    if desired is None or isinstance(desired, str | int | float):  # the most by far, and the quickest to tell
        if not _same_scalar(desired, live):
            yield at
    elif isinstance(desired, list | tuple):
        yield from _sequence(desired, live, at)
    else:
        yield from _mapping(desired, live, at)


def written(path: Path) -> str:
    """``spec.containers[vllm].image``."""
    return "".join(step if step.startswith("[") or not i else f".{step}" for i, step in enumerate(path))


def _mapping(desired: Mapping[str, Any], live: Any, at: Path) -> Iterator[Path]:  # noqa: ANN401 - JSON
    if not desired:
        return
    if not isinstance(live, Mapping):
        yield at
        return
    if at and at[-1] in WHOLE_MAPS and not live.keys() <= desired.keys():
        yield at
        return
    for key, value in desired.items():
        yield from differences(value, live.get(key), (*at, key))


def _sequence(desired: Sequence[Any], live: Any, at: Path) -> Iterator[Path]:  # noqa: ANN401 - JSON
    if not desired:
        return
    if not isinstance(live, Sequence) or isinstance(live, str):
        yield at
        return
    key = _merge_key(desired)
    if key is not None:
        yield from _keyed(desired, live, key, at)
    elif len(desired) != len(live) or any(True for _ in _pairwise(desired, live)):
        yield at


def _keyed(desired: Sequence[Any], live: Sequence[Any], key: str, at: Path) -> Iterator[Path]:
    by_key = {str(entry.get(key)): entry for entry in live if isinstance(entry, Mapping)}
    for entry in desired:
        yield from differences(entry, by_key.get(str(entry[key])), (*at, f"[{entry[key]}]"))


def _pairwise(desired: Sequence[Any], live: Sequence[Any]) -> Iterator[Path]:
    for wanted, found in zip(desired, live, strict=True):
        yield from differences(wanted, found)


def _merge_key(entries: Sequence[Any]) -> str | None:
    """The field that tells the entries apart. Two tolerations of one key have none: their order counts."""
    if not all(isinstance(entry, Mapping) for entry in entries):
        return None
    return next((key for key in MERGE_KEYS if _tells_apart(key, entries)), None)


def _tells_apart(key: str, entries: Sequence[Mapping[str, Any]]) -> bool:
    values = [entry.get(key) for entry in entries]
    return all(isinstance(value, str | int) for value in values) and len(set(values)) == len(values)


def _same_scalar(desired: Any, live: Any) -> bool:  # noqa: ANN401 - JSON
    if live is None:
        return not desired  # the API server drops zero values of optional fields
    if isinstance(desired, bool) or isinstance(live, bool):
        return desired is live
    if desired == live:
        return True
    wanted, found = quantity(desired), quantity(live)
    return wanted is not None and wanted == found
