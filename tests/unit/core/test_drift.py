"""Desired ⊆ live: defaults and other people's additions are no drift, edits of ours are."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import names
from plimsoll.core.drift import differences, differs, digest, stamp, written

CONTAINER = {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "args": ["m", "--max-num-seqs", "64"]}


@pytest.mark.parametrize(
    ("desired", "live", "where"),
    [
        pytest.param({"a": 1}, {"a": 1, "b": 2}, None, id="somebody's extra field is theirs"),
        pytest.param(
            {"selector": {"a": "b"}}, {"selector": {"a": "b", "c": "d"}}, "selector", id="a selector is whole"
        ),
        pytest.param({"cpu": "1000m"}, {"cpu": "1"}, None, id="the API server normalised a quantity"),
        pytest.param({"size": str(2**31)}, {"size": "2Gi"}, None, id="bytes and Gi are the same quantity"),
        pytest.param({"labels": {}}, {}, None, id="an empty map asks for nothing"),
        pytest.param({"automount": False}, {}, None, id="a false optional field is dropped by the API server"),
        pytest.param({"automount": False}, {"automount": True}, "automount", id="a flipped flag is drift"),
        pytest.param({"x": {"y": 1}}, {"x": None}, "x", id="a missing map is drift"),
        pytest.param({"x": 1}, {"x": True}, "x", id="true is not the number one"),
        pytest.param(
            {"containers": [CONTAINER]},
            {"containers": [{"name": "proxy"}, {**CONTAINER, "imagePullPolicy": "IfNotPresent"}]},
            None,
            id="a sidecar and a default are no drift",
        ),
        pytest.param(
            {"containers": [CONTAINER]},
            {"containers": [{**CONTAINER, "image": "other"}]},
            "containers[vllm].image",
            id="an edited image is drift",
        ),
        pytest.param(
            {"containers": [CONTAINER]},
            {"containers": [{**CONTAINER, "args": [*CONTAINER["args"], "--enforce-eager"]}]},
            "containers[vllm].args",
            id="an added argument is drift",
        ),
        pytest.param(
            {"containers": [CONTAINER]},
            {"containers": []},
            "containers[vllm]",
            id="a lost container is drift",
        ),
        pytest.param(
            {"tolerations": [{"key": "gpu", "effect": "NoSchedule"}, {"key": "gpu", "effect": "NoExecute"}]},
            {"tolerations": [{"key": "gpu", "effect": "NoSchedule"}, {"key": "gpu", "effect": "NoExecute"}]},
            None,
            id="two entries of one key are told apart by their place",
        ),
        pytest.param({"size": "2000u"}, {"size": "2m"}, None, id="any suffix of a quantity"),
    ],
)
def test_drift_is_found_where_it_is(desired: dict[str, object], live: dict[str, object], where: str | None) -> None:
    assert differs(desired, live) == where


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_a_value_never_differs_from_itself(value: object) -> None:
    assert differs({"value": value}, {"value": value}) is None


def test_all_differences_are_found() -> None:
    live = {"spec": {"a": 2, "ports": [{"name": "http", "port": 80}]}}
    desired = {"spec": {"a": 1, "ports": [{"name": "http", "port": 8000}]}, "x": 1}
    assert [*map(written, differences(desired, live))] == ["spec.a", "spec.ports[http].port", "x"]


@given(st.dictionaries(st.text(max_size=5), JSON, min_size=1, max_size=4))
def test_the_digest_ignores_the_order_of_keys_only(value: dict[str, object]) -> None:
    assert digest(dict(reversed(value.items()))) == digest(value)
    assert digest({**value, "one more": 1}) != digest(value)


def test_the_stamp_changes_with_the_intent_and_keeps_other_annotations() -> None:
    manifest: dict[str, Any] = {"metadata": {"name": "x", "annotations": {"a": "b"}}, "spec": {"replicas": 1}}
    stamped = stamp(manifest)
    other = stamp({**manifest, "spec": {"replicas": 2}})
    assert stamped["metadata"]["annotations"]["a"] == "b"
    assert (
        stamped["metadata"]["annotations"][names.ANNOTATION_HASH]
        != other["metadata"]["annotations"][names.ANNOTATION_HASH]
    )
    assert manifest["metadata"]["annotations"] == {"a": "b"}
