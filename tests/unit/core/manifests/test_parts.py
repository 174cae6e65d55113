"""Small parts of manifests on their own: names, owners, images, what merges, what a revision keeps."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.api import names
from plimsoll.api.quality_gate import QualityGateSpec
from plimsoll.core.manifests.deployment import deployment
from plimsoll.core.manifests.gate import is_built_in
from plimsoll.core.manifests.group import set_name
from plimsoll.core.manifests.identity import Owner, selector_text
from plimsoll.core.manifests.image import command, engine_image, image_of, is_known, repository
from plimsoll.core.manifests.merge import merged
from plimsoll.core.manifests.pdb import disruption_budget
from plimsoll.core.manifests.revision import (
    OLD_DEADLINE_MARGIN_SECONDS,
    Revision,
    current,
    new_revision,
    outdated,
    read_revision,
    restarted,
)

OWNER = Owner("ns", "svc", "u")


def test_children_go_with_their_service_which_waits_for_them() -> None:
    reference = OWNER.reference()
    assert (reference["controller"], reference["blockOwnerDeletion"], reference["uid"]) == (True, True, "u")
    assert OWNER.metadata()["name"] == "svc"
    assert OWNER.metadata("other")["name"] == "other"
    assert selector_text({"b": "2", "a": "1"}) == "a=1,b=2"


@pytest.mark.parametrize(
    ("service", "name"),
    [
        pytest.param("s" * 44, "s" * 44 + "-lws", id="just fits"),
        pytest.param("s" * 45, None, id="one too long"),
        pytest.param("s" * 37 + "-" * 20, None, id="cut at a hyphen"),
    ],
)
def test_a_sets_name_is_the_services_as_far_as_it_fits(service: str, name: str | None) -> None:
    found = set_name(service)
    if name is not None:
        assert found == name
        return
    assert found.endswith("-lws")
    kept, mark, _ = found.rsplit("-", 2)
    assert len(mark) == 5
    assert service.startswith(kept)
    assert kept[-1] == "s"
    assert len(found) == (48 if service == "s" * 45 else 37 + 6 + 4)


@pytest.mark.parametrize(
    ("containers", "built_in"),
    [
        pytest.param([], True, id="nobody says anything"),
        pytest.param([{"name": "gate", "env": []}], True, id="variables of ours"),
        pytest.param([{"name": "gate", "image": "evals:7"}], False, id="an image of one's own"),
        pytest.param([{"name": "beside", "image": "proxy:1"}], True, id="another container's image"),
    ],
)
def test_whose_comparison_it_is(containers: list[dict[str, Any]], built_in: bool) -> None:
    gate = QualityGateSpec.model_validate({"podTemplate": {"spec": {"containers": containers}}} if containers else {})
    assert is_built_in(gate) is built_in


@pytest.mark.parametrize(
    ("asked", "version", "known"),
    [
        (None, "0.19.0", True),
        (None, "0.18.0", False),
        ("vllm/vllm-openai:v0.32.0", "0.32.0", True),
        ("mirror.example/vllm-openai@sha256:abc", "0.32.0", True),
        ("vllm-openai", "0.32.0", True),
        ("mine/vllm-openai-plus:1", "0.32.0", False),
        ("mine/vllm:1", "0.32.0", False),
        (None, "nightly", False),
    ],
)
def test_images_whose_entry_point_is_known(asked: str | None, version: str, known: bool) -> None:
    assert is_known(asked, version, since=19) is known
    assert command(asked, version) == ([] if known else ["vllm", "serve"])


def test_an_image_is_the_users_or_the_releases() -> None:
    assert engine_image(None, "0.32.0") == "vllm/vllm-openai:v0.32.0"
    assert engine_image("mine:1", "0.32.0") == "mine:1"
    template = {"spec": {"containers": [{"name": "beside", "image": "proxy:1"}, {"name": "vllm", "image": "mine:1"}]}}
    assert image_of(template) == "mine:1"


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("docker.io/vllm/vllm-openai:v1", "vllm/vllm-openai"),
        ("registry.example:5000/vllm@sha256:abc", "registry.example:5000/vllm"),
        ("vllm:1", "vllm"),
    ],
)
def test_a_repository_has_neither_tag_nor_digest(image: str, name: str) -> None:
    assert repository(image) == name


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        pytest.param({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}, id="maps by key"),
        pytest.param({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}, id="a text for a map"),
        pytest.param({"a": "text"}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="a map for a text"),
        pytest.param({"env": [{"name": "A", "value": "1"}]}, {"env": "odd"}, {"env": "odd"}, id="a text for a list"),
        pytest.param({"args": ["1"]}, {"args": ["2"]}, {"args": ["2"]}, id="lists without a key"),
        pytest.param({"tolerations": [1]}, {"tolerations": [1, 2]}, {"tolerations": [1, 2]}, id="added to, each once"),
        pytest.param({"tolerations": [1]}, {"tolerations": "odd"}, {"tolerations": "odd"}, id="a text is no list"),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
            {"env": [{"name": "A", "valueFrom": {}}, {"name": "C", "value": "3"}]},
            {"env": [{"name": "A", "valueFrom": {}}, {"name": "B", "value": "1"}, {"name": "C", "value": "3"}]},
            id="variables are one thing or another",
        ),
        pytest.param(
            {"containers": [{"name": "vllm", "image": "a"}]},
            {"containers": [{"name": "vllm", "tty": True}]},
            {"containers": [{"name": "vllm", "image": "a", "tty": True}]},
            id="containers by name",
        ),
    ],
)
def test_a_template_is_merged_as_kubernetes_would(
    ours: dict[str, Any], theirs: dict[str, Any], found: dict[str, Any]
) -> None:
    assert merged(ours, theirs) == found


def test_one_pod_may_be_away_and_those_that_load_always() -> None:
    spec = disruption_budget(OWNER)["spec"]
    assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert spec["selector"] == {"matchLabels": {names.LABEL_INSTANCE: "svc", names.LABEL_TRACK: names.TRACK_MAIN}}
    assert "matchExpressions" in disruption_budget(OWNER, 2)["spec"]["selector"]


def _revision(number: int = 1, **changes: Any) -> Revision:
    made = new_revision(OWNER, "f", {"choice": {"gpus": 1}}, {"metadata": {}}, 100, number)
    return replace(made, **changes)


@pytest.mark.parametrize(
    "revision",
    [
        _revision(),
        _revision(learned={"a": 1}, tuned={"b": 2}, load={"c": 3}, worker_template={"d": 4}),
    ],
)
def test_a_revision_is_read_back_as_it_was_kept(revision: Revision) -> None:
    assert read_revision(revision.manifest(OWNER)) == revision


@pytest.mark.parametrize("lost", ["fingerprint", "plan", "template", "loadSeconds"])
def test_what_somebody_else_wrote_is_no_revision(lost: str) -> None:
    manifest = _revision().manifest(OWNER)
    data = {key: value for key, value in manifest["data"].items() if key != lost}
    assert read_revision({**manifest, "data": data}) is None
    assert read_revision({**manifest, "data": "raw"}) is None


def test_a_revision_without_a_number_is_older_than_all() -> None:
    manifest = {key: value for key, value in _revision().manifest(OWNER).items() if key != "revision"}
    found = read_revision(manifest)
    assert found is not None
    assert found.number == 0


def test_a_name_follows_from_the_content_alone() -> None:
    one = _revision()
    assert _revision(7).name == one.name
    assert len(one.name) == len("svc-") + 10
    for changed in (
        new_revision(OWNER, "g", {"choice": {"gpus": 1}}, {"metadata": {}}, 100, 1),
        new_revision(OWNER, "f", {"choice": {"gpus": 2}}, {"metadata": {}}, 100, 1),
        new_revision(OWNER, "f", {"choice": {"gpus": 1}}, {"metadata": {"a": 1}}, 100, 1),
        new_revision(OWNER, "f", {"choice": {"gpus": 1}}, {"metadata": {}}, 100, 1, {"worker": 1}),
    ):
        assert changed.name != one.name


@pytest.mark.parametrize(
    ("plan", "deadline", "nodes"),
    [
        ({}, 2 * 100 + OLD_DEADLINE_MARGIN_SECONDS, 1),
        ({"startup": {"deadlineSeconds": 77}, "choice": {"nodesPerReplica": 2}}, 77, 2),
    ],
)
def test_when_a_roll_out_is_too_slow(plan: dict[str, Any], deadline: int, nodes: int) -> None:
    found = _revision(plan=plan)
    assert (found.deadline_seconds, found.nodes) == (deadline, nodes)


def test_the_current_revision_and_those_that_are_too_old() -> None:
    several = [_revision(n, name=f"svc-{n}") for n in range(1, 6)]
    newest = current(several)
    assert newest is not None
    assert newest.number == 5
    assert outdated(several, keep=3) == ("svc-2", "svc-1")
    assert outdated(several, running="svc-1", keep=3) == ("svc-2",)
    assert outdated(several, keep=5) == ()
    assert current([]) is None


def test_the_restart_that_pods_were_made_for() -> None:
    again = _revision(2, template={"metadata": {"annotations": {names.ANNOTATION_RESTART: "now"}}})
    assert restarted([_revision(1), again]) == "now"
    assert restarted([_revision(3), again]) == ""
    assert restarted([]) == ""


def test_a_deployment_keeps_few_replica_sets_and_no_count() -> None:
    made = deployment(OWNER, {"metadata": {}}, deadline_seconds=900, way="Surge")
    assert made["metadata"]["annotations"] == {names.ANNOTATION_WAY: "Surge"}
    assert made["spec"]["progressDeadlineSeconds"] == 900
    assert "replicas" not in made["spec"]
