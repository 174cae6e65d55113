"""The rules by which an operator is upgraded, and rolled back, without a restart of any pod (docs/upgrades.md)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.recorded import Recording, recordings
from plimsoll.api.schema import resource_schema
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.revision import Revision, current, read_revision
from plimsoll.core.request import FREE_OF_PLAN, Request, read_request
from plimsoll.core.rollout import Unavailable, choose_target

RECORDINGS: Final = [pytest.param(path, id=path.name.partition(".")[0]) for path in recordings()]


@pytest.mark.parametrize("path", RECORDINGS)
def test_a_spec_that_did_not_change_still_answers_to_its_kept_plan(path: Path) -> None:
    recording = Recording.read(path)
    for service in recording.services:
        kept = _revisions(recording, service["metadata"]["name"])
        running = current(kept)
        if running is not None:
            assert _request(service).fingerprint == running.fingerprint, service["metadata"]["name"]
    assert sum(bool(_revisions(recording, s["metadata"]["name"])) for s in recording.services) >= 9


@pytest.mark.parametrize("path", RECORDINGS)
def test_what_an_earlier_operator_kept_can_be_read_and_is_the_template_to_apply(path: Path) -> None:
    recording = Recording.read(path)
    fleets = [d for d in recording.manifests("Deployment") if "template" in d["spec"]]
    templates = {d["metadata"]["name"]: d["spec"]["template"] for d in fleets}
    assert templates
    for service in recording.services:
        name = service["metadata"]["name"]
        kept = _revisions(recording, name)
        if not kept:
            continue
        target = choose_target(_request(service), Unavailable("Reason", "no answer"), kept)
        assert target.revision is not None
        assert target.revision.template == templates[name], name


@pytest.mark.parametrize("path", RECORDINGS)
def test_an_earlier_operator_can_read_what_this_one_keeps(path: Path) -> None:
    """Keys are added to a revision and to its plan, never renamed, moved or dropped: the other side of the rule."""
    earlier = Recording.read(path).manifests("ControllerRevision")[0]
    mine = read_revision(earlier)
    assert mine is not None
    written = mine.manifest(Owner("ns", "svc", "uid"))
    assert earlier["data"].keys() <= written["data"].keys()
    assert {key: type(value) for key, value in earlier["data"].items()} == {
        key: type(written["data"][key]) for key in earlier["data"]
    }


@pytest.mark.parametrize("path", RECORDINGS)
def test_a_new_spec_field_has_no_default_in_an_object_that_exists_already(path: Path) -> None:
    """The API server fills a default into every stored object: all would differ from what their plan answers."""
    known = Recording.read(path).spec_fields
    spec = resource_schema()["properties"]["spec"]
    for field in _defaulted(spec, ""):
        parents = [field.rsplit(".", depth)[0] for depth in range(1, field.count(".") + 1)]
        inside_new = any(parent not in known for parent in parents)
        assert field in known or inside_new or field.split(".")[0] in FREE_OF_PLAN, (
            f"spec.{field}: make it optional without a default, and let the code know what left out means"
        )


def _defaulted(schema: dict[str, Any], at: str) -> Iterator[str]:
    for name, child in (schema.get("properties") or {}).items():
        path = f"{at}.{name}" if at else name
        if "default" in child:
            yield path
        yield from _defaulted(child, path)


def _request(service: dict[str, Any]) -> Request:
    meta = {**service["metadata"], "uid": service["recordedUid"], "generation": 1}
    return read_request({"metadata": meta, "spec": service["storedSpec"]})


def _revisions(recording: Recording, service: str) -> list[Revision]:
    manifests = recording.manifests("ControllerRevision")
    mine = [m for m in manifests if m["metadata"]["ownerReferences"][0]["name"] == service]
    return [revision for m in mine if (revision := read_revision(m)) is not None]
