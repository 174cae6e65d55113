"""The engine's rights: Restricted wherever its image is known to allow it."""

from typing import Any

import pytest

from tests.unit.core.manifests.rendering import env, pod


def restricted(spec: dict[str, Any]) -> bool:
    """Whether the pod passes the Pod Security level; the real API server is asked in e2e/test_pods.py."""
    container, whole = spec["containers"][0]["securityContext"], spec["securityContext"]
    return (
        whole.get("runAsNonRoot") is True
        and whole["seccompProfile"] == {"type": "RuntimeDefault"}
        and container["allowPrivilegeEscalation"] is False
        and container["capabilities"] == {"drop": ["ALL"]}
    )


@pytest.mark.parametrize(
    ("engine", "model", "expect"),
    [
        pytest.param({}, {}, True, id="the default image"),
        pytest.param({"image": "mirror.example.com/x/vllm-openai:v0.32.0"}, {}, True, id="a mirror of it"),
        pytest.param({"image": "mirror.example.com/vllm-openai@sha256:0a"}, {}, True, id="by digest"),
        pytest.param({"version": "0.22.1"}, {}, False, id="a release before its user"),
        pytest.param({"image": "mirror.example.com/vllm-openai:v0.16.0"}, {}, False, id="told by the tag"),
        pytest.param({"image": "registry.example.com/own-vllm:1"}, {}, False, id="an own image"),
        pytest.param({"image": "registry.example.com/own-vllm:1", "security": "Restricted"}, {}, True, id="own, asked"),
        pytest.param({"security": "Baseline"}, {}, False, id="not wanted"),
        pytest.param({}, {"source": {"hostPath": {"path": "/mnt"}}}, False, id="a folder of the node"),
    ],
)
def test_who_is_restricted(engine: dict[str, Any], model: dict[str, Any], expect: bool) -> None:
    spec = pod(engine=engine, model=model)
    assert restricted(spec) is expect
    assert spec["containers"][0]["securityContext"].get("readOnlyRootFilesystem", False) is expect


def test_a_read_only_root_leaves_room_for_everything_the_engine_writes() -> None:
    spec = pod()
    container = spec["containers"][0]
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    variables = env(container)
    written = [
        v for n, v in variables.items() if n == "HOME" or n.endswith(("_HOME", "_ROOT", "_DIR", "_BASE", "_PATH"))
    ]
    assert len(written) >= 8
    assert all(any(f"{path}/".startswith(f"{place}/") for place in writable) for path in written), written
    assert {"/tmp", "/dev/shm"} <= writable


def test_the_known_image_runs_as_its_own_user_and_another_as_whoever_it_names() -> None:
    known, other = pod(), pod(engine={"image": "own:1", "security": "Restricted"})
    assert known["containers"][0]["securityContext"]["runAsUser"] == 2000
    assert "runAsUser" not in other["containers"][0]["securityContext"]
    assert known["securityContext"]["fsGroup"] == 0
