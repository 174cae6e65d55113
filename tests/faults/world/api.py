"""The API server of the world: what each verb does to an object, and what it answers. It takes no time by itself."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from plimsoll.adapters.ports import (
    PODS,
    REVISIONS,
    SERVICES,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    Kind,
    NotFoundError,
)
from tests.faults.world import ownership
from tests.faults.world.admission import admitted, typed
from tests.faults.world.kinds import NAMESPACES, UnfaithfulError, crd_schema, traits
from tests.faults.world.managers import Manager, applied, managed_fields, managers_after, managers_of
from tests.faults.world.ownership import Path
from tests.faults.world.store import Address, Event, Object, Store
from tests.faults.world.virtual_time import Agenda

SYSTEM: Final = ("uid", "creationTimestamp", "resourceVersion", "generation", "deletionTimestamp", "managedFields")
"""Metadata that only the API server writes."""
FIELDS: Final[Mapping[str, Callable[[Object], object]]] = {
    "spec.nodeName": lambda obj: obj.get("spec", {}).get("nodeName", ""),
    "involvedObject.kind": lambda obj: obj.get("involvedObject", {}).get("kind", ""),
    "involvedObject.name": lambda obj: obj.get("involvedObject", {}).get("name", ""),
    "involvedObject.uid": lambda obj: obj.get("involvedObject", {}).get("uid", ""),
}


@dataclass
class Api:
    """One API server. ``manager`` arguments are field managers; every error is one of the port's.

    ``traits`` refuses kinds that this world has not.
    """

    agenda: Agenda
    random: random.Random
    store: Store = field(default_factory=Store)

    # Reading.

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """One object; NotFoundError when there is none."""
        found = self.store.get(kind, _address(kind, namespace, name))
        if found is None:
            raise NotFoundError(f'{kind.plural} "{name}" not found', status=404)
        return found

    def listed(self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = "") -> list[Object]:
        """All objects of a kind that match; a listing's items carry neither apiVersion nor kind."""
        traits(kind)
        chosen = matcher(selector, fields)
        return [_item(obj) for obj in self.store.all(kind, namespace) if chosen(obj)]

    def listed_at(
        self, version: int, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = ""
    ) -> list[Object]:
        """The same as it was at a version: of an API server that lags behind."""
        traits(kind)
        chosen = matcher(selector, fields)
        found = sorted(self.store.as_of(kind, version).items())
        return [_item(obj) for at, obj in found if namespace in (None, at.namespace) and chosen(obj)]

    def changes(self, kind: Kind, since: int) -> list[Event]:
        """What has changed since a version; GoneError when that is forgotten."""
        traits(kind)
        if since < self.store.oldest:
            raise GoneError(f"too old resource version: {since} ({self.store.oldest})", status=410)
        return self.store.events(kind, since)

    # Writing.

    def create(self, kind: Kind, manifest: Mapping[str, Any], manager: str) -> Object:
        """POST."""
        meta = manifest["metadata"]
        name = meta.get("name") or f"{meta['generateName']}{self._suffix()}"
        address = _address(kind, meta.get("namespace", ""), name)
        if self.store.get(kind, address):
            raise ConflictError(f'{kind.plural} "{name}" already exists', status=409)
        obj = {**manifest, "metadata": {**meta, "name": name}}
        return self._finish(kind, None, obj, Manager(manager, "Update", kind.api_version))

    def replace(self, kind: Kind, manifest: Mapping[str, Any], manager: str, subresource: str = "") -> Object:
        """PUT: of the version that the manifest names, if it names one."""
        meta = manifest["metadata"]
        before = self.get(kind, meta.get("namespace", ""), meta["name"])
        _same_version(kind, before, meta)
        return self._finish(kind, before, dict(manifest), Manager(manager, "Update", kind.api_version, subresource))

    def patch(
        self, kind: Kind, namespace: str, name: str, change: Mapping[str, Any], manager: str, subresource: str = ""
    ) -> Object:
        """Merge patch: None removes a field, a list is replaced as a whole."""
        before = self.get(kind, namespace, name)
        _same_version(kind, before, change.get("metadata") or {})
        after = _patched(before, change)
        return self._finish(kind, before, after, Manager(manager, "Update", kind.api_version, subresource))

    def apply(
        self, kind: Kind, manifest: Mapping[str, Any], manager: str, subresource: str = "", *, force: bool = True
    ) -> Object:
        """Server-side apply."""
        meta, shape = manifest["metadata"], traits(kind).shape
        if kind == PODS and subresource == "status":
            return self._say_of_pod(manifest, manager)
        if not traits(kind).tracked:
            raise UnfaithfulError(f"{kind.kind}: nobody applies such objects here")
        address = _address(kind, meta.get("namespace", ""), meta["name"])
        before = self.store.get(kind, address)
        if before is None and subresource:
            raise NotFoundError(f'{kind.plural} "{address.name}" not found', status=404)
        if before is not None:
            _same_version(kind, before, meta)
            if meta.get("uid", before["metadata"]["uid"]) != before["metadata"]["uid"]:
                raise InvalidError(f'{kind.plural} "{address.name}": metadata.uid: field is immutable', status=422)
        who = Manager(manager, "Apply", kind.api_version, subresource)
        wanted = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
        wanted["metadata"] = {k: v for k, v in meta.items() if k in ownership.MANAGED_METADATA}
        if kind == SERVICES:
            wanted = _of_part(wanted, subresource)
            typed(wanted)
        after, managers = applied(before, wanted, who, shape, force=force)
        after = {**after, "metadata": {**after["metadata"], "name": address.name}}
        if address.namespace:
            after["metadata"]["namespace"] = address.namespace
        return self._finish(kind, before, after, who, managers)

    def _say_of_pod(self, manifest: Mapping[str, Any], manager: str) -> Object:
        """Conditions that somebody applies to a pod's status: beside those of others, by their type."""
        meta, said = manifest["metadata"], manifest["status"]["conditions"]
        if manifest["status"].keys() != {"conditions"}:
            raise UnfaithfulError("of a pod's status only conditions are applied here")
        pod = self.get(PODS, meta["namespace"], meta["name"])
        if meta.get("uid", pod["metadata"]["uid"]) != pod["metadata"]["uid"]:
            raise ConflictError(f'pods "{meta["name"]}": Precondition failed: UID in precondition', status=409)
        mine = {condition["type"] for condition in said}
        others = [c for c in pod["status"].get("conditions") or () if c["type"] not in mine]
        return self.replace(
            PODS, {**pod, "status": {**pod["status"], "conditions": [*others, *said]}}, manager, "status"
        )

    def scale(self, kind: Kind, namespace: str, name: str, replicas: int, manager: str) -> Object:
        """What ``kubectl scale`` and autoscalers do: through the scale subresource."""
        before = self.get(kind, namespace, name)
        after = {**before, "spec": {**before["spec"], "replicas": replicas}}
        return self._finish(kind, before, after, Manager(manager, "Update", kind.api_version, "scale"))

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """DELETE, in the background: dependents go afterwards."""
        found = self.get(kind, namespace, name)
        meta = found["metadata"]
        if uid and uid != meta["uid"]:
            raise ConflictError(
                f"Precondition failed: UID in precondition: {uid}, in object: {meta['uid']}", status=409
            )
        if version and version != meta["resourceVersion"]:
            raise ConflictError(
                f"Precondition failed: version {version}, in object: {meta['resourceVersion']}", status=409
            )
        grace = self._grace(kind, found, grace_seconds)
        if kind == NAMESPACES:
            if not meta.get("deletionTimestamp"):
                self._mark_leaving(kind, found, 0)
        elif grace:
            if not meta.get("deletionTimestamp"):
                self._mark_leaving(kind, found, grace)
        else:
            self.store.drop(kind, found)

    def _grace(self, kind: Kind, obj: Object, wished: int | None) -> int:
        if (
            not traits(kind).grace
            or not obj["spec"].get("nodeName")
            or obj["status"].get("phase") in ("Failed", "Succeeded")
        ):
            return 0
        return int(obj["spec"].get("terminationGracePeriodSeconds", 30)) if wished is None else wished

    def _mark_leaving(self, kind: Kind, obj: Object, grace: int) -> None:
        at = (self.agenda.wall() + timedelta(seconds=grace)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.store.put(kind, {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": at}})

    # What every write goes through.

    def _finish(
        self,
        kind: Kind,
        before: Object | None,
        after: Object,
        who: Manager,
        managers: dict[Manager, frozenset[Path]] | None = None,
    ) -> Object:
        """Keep what a write means, unless it changes nothing."""
        of, meta = traits(kind), after["metadata"]
        if before is None:
            self._may_create(kind, meta.get("namespace", ""))
        after = {"apiVersion": kind.api_version, "kind": kind.kind, **_parts(after, before, of.status, who.subresource)}
        after["metadata"] = self._metadata(after["metadata"], before)
        after = admitted(after, before) if kind == SERVICES else of.defaults(after)
        kept = managers_after(before, after, who, of.shape) if of.tracked and managers is None else managers or {}
        if before is not None and _same(before, after) and kept == managers_of(before):
            return before
        if of.generation:
            after["metadata"]["generation"] = _generation(before, after)
        if kind == REVISIONS and before is not None and before["data"] != after["data"]:
            raise InvalidError(
                f'ControllerRevision "{after["metadata"]["name"]}": data: field is immutable', status=422
            )
        if of.tracked:
            after["metadata"]["managedFields"] = managed_fields(before, kept, self.agenda.stamp())
        return self.store.put(kind, after)

    def _may_create(self, kind: Kind, namespace: str) -> None:
        if not traits(kind).namespaced:
            return
        found = self.store.get(NAMESPACES, Address("", namespace))
        if found is None:
            raise NotFoundError(f'namespaces "{namespace}" not found', status=404)
        if found["metadata"].get("deletionTimestamp"):
            text = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise ForbiddenError(text, status=403)

    def _metadata(self, meta: Mapping[str, Any], before: Object | None) -> Object:
        """Metadata as sent, without what only the API server writes."""
        sent = {key: value for key, value in meta.items() if key not in SYSTEM and value not in ({}, [])}
        if before is None:
            return {
                **sent,
                "uid": str(UUID(int=self.random.getrandbits(128), version=4)),
                "creationTimestamp": self.agenda.stamp(),
            }
        return {**sent, **{key: value for key, value in before["metadata"].items() if key in SYSTEM}}

    def schema(self, kind: Kind) -> Mapping[str, Any]:
        """The schema under which a kind is served; only that of VLLMServices is known."""
        if kind != SERVICES:
            raise UnfaithfulError(f"schema of {kind.kind}")
        return crd_schema()

    def _suffix(self) -> str:
        return "".join(self.random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))


def matcher(selector: str, fields: str = "") -> Callable[[Mapping[str, Any]], bool]:
    """Whether an object matches a label selector (equalities) and a field selector."""
    labels = [*_pairs(selector)]
    wanted = [*_pairs(fields)]
    if unknown := [name for name, _ in wanted if name not in FIELDS]:
        raise UnfaithfulError(f"field selector on {unknown[0]}")

    def matches(obj: Mapping[str, Any]) -> bool:
        found = obj["metadata"].get("labels") or {}
        return all(found.get(k) == v for k, v in labels) and all(FIELDS[k](dict(obj)) == v for k, v in wanted)

    return matches


def _pairs(selector: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, selector.split(",")):
        name, operator, value = part.partition("=")
        if not operator or name.endswith("!") or " " in part:
            raise UnfaithfulError(f"selector {part!r}: only equalities are understood")
        yield name, value.removeprefix("=")


def _address(kind: Kind, namespace: str, name: str) -> Address:
    return Address(namespace if traits(kind).namespaced else "", name)


def _item(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}


def _same_version(kind: Kind, before: Object, meta: Mapping[str, Any]) -> None:
    if meta.get("resourceVersion") and meta["resourceVersion"] != before["metadata"]["resourceVersion"]:
        name = before["metadata"]["name"]
        text = f'Operation cannot be fulfilled on {kind.plural} "{name}": the object has been modified'
        raise ConflictError(text, status=409)


def _parts(after: Object, before: Object | None, has_status: bool, subresource: str) -> Object:
    """Of what was sent, the part that this door lets in."""
    if subresource == "status":
        assert before is not None
        return {**before, "status": after.get("status", {})}
    if has_status and before is not None:
        rest = {key: value for key, value in after.items() if key != "status"}
        return {**rest, "status": before["status"]} if "status" in before else rest
    if has_status and before is None:
        return {key: value for key, value in after.items() if key != "status"}
    return after


def _of_part(wanted: Object, subresource: str) -> Object:
    """Of an applied manifest, what counts at this door."""
    if subresource == "status":
        return {"metadata": {}, "status": wanted.get("status", {})}
    return {key: value for key, value in wanted.items() if key != "status"}


def _patched(value: Any, change: Any) -> Any:
    if not isinstance(change, Mapping):
        return change
    found = dict(value) if isinstance(value, Mapping) else {}
    for key, inner in change.items():
        if inner is None:
            found.pop(key, None)
        else:
            found[key] = _patched(found.get(key), inner)
    return found


def _same(before: Object, after: Object) -> bool:
    return {**before, "metadata": _plain(before)} == {**after, "metadata": _plain(after)}


def _plain(obj: Object) -> Object:
    return {key: value for key, value in obj["metadata"].items() if key not in SYSTEM}


def _generation(before: Object | None, after: Object) -> int:
    if before is None:
        return 1
    told = {key: value for key, value in after.items() if key not in ("metadata", "status")}
    was = {key: value for key, value in before.items() if key not in ("metadata", "status")}
    return int(before["metadata"]["generation"]) + (told != was)
