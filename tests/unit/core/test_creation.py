"""Why a container is not created, from events as kubelets and controllers write them."""

from typing import Any

import pytest

from plimsoll.core.creation import claims, of_claim, of_pod


def _event(version: int, reason: str, message: str, kind: str = "Warning") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version)}, "type": kind, "reason": reason, "message": message}


def _mount(version: int, words: str) -> dict[str, Any]:
    return _event(version, "FailedMount", f'MountVolume.SetUp failed for volume "conf" : {words}')


PULLING = _event(9, "Pulling", 'Pulling image "vllm/vllm-openai:v0.32.0"', "Normal")
SUMMARY = _event(
    9,
    "FailedMount",
    "Unable to attach or mount volumes: unmounted volumes=[conf], unattached volumes=[], failed to process volumes=[]: "
    "timed out waiting for the condition",
)
MULTI_ATTACH = _event(
    3, "FailedAttachVolume", 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) svc-1'
)


@pytest.mark.parametrize(
    ("events", "reason", "lasting", "says"),
    [
        pytest.param(
            [_mount(1, 'secret "tls" not found')],
            "ObjectMissing",
            True,
            "Secret llm/tls (volume conf) does not exist; create it",
            id="no such Secret",
        ),
        pytest.param(
            [_mount(1, 'configmap "settings" not found')],
            "ObjectMissing",
            True,
            "ConfigMap llm/settings (volume conf) does not exist; create it",
            id="no such ConfigMap",
        ),
        pytest.param(
            [_mount(1, "references non-existent config key: a.json")],
            "ObjectMissing",
            True,
            "the ConfigMap of volume conf has no key a.json",
            id="no such key",
        ),
        pytest.param(
            [_mount(1, "references non-existent secret key: token")],
            "ObjectMissing",
            True,
            "the Secret of volume conf has no key token",
            id="no such key in a Secret",
        ),
        pytest.param(
            [_mount(1, 'secret "tls" not found'), SUMMARY],
            "ObjectMissing",
            True,
            "Secret llm/tls",
            id="the kubelet's summary later hides nothing",
        ),
        pytest.param([SUMMARY], "VolumeNotMounted", False, "unmounted volumes=[conf]", id="nothing but the summary"),
        pytest.param(
            [_mount(1, 'secret "tls" not found'), PULLING], "PullingImage", False, "vllm-openai", id="it was made since"
        ),
        pytest.param(
            [PULLING, _mount(12, 'secret "tls" not found')], "ObjectMissing", True, "tls", id="whatever their order"
        ),
        pytest.param(
            [_mount(2, "mount failed: exit status 32, mount.nfs: Connection timed out")],
            "VolumeNotMounted",
            False,
            "mount.nfs: Connection timed out",
            id="a server that does not answer",
        ),
        pytest.param([MULTI_ATTACH], "VolumeNotMounted", False, "Multi-Attach error", id="D21: another node has it"),
        pytest.param(
            [_event(1, "FailedCreatePodSandBox", "Failed to create pod sandbox: rpc error: no IP addresses available")],
            "ContainerNotStarted",
            False,
            "no IP addresses",
            id="no address for the pod",
        ),
    ],
)
def test_events_of_a_pod(events: list[dict[str, Any]], reason: str, lasting: bool, says: str) -> None:
    found = of_pod(events, "llm")
    assert found is not None
    assert (found.reason, found.lasting) == (reason, lasting)
    assert says in found.message


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([], id="none"),
        pytest.param([_event(1, "Scheduled", "Successfully assigned llm/svc-1 to a", "Normal")], id="placed"),
        pytest.param([_event(1, "BackOff", "Back-off restarting failed container")], id="the status says it better"),
    ],
)
def test_events_that_explain_no_wait(events: list[dict[str, Any]]) -> None:
    assert of_pod(events, "llm") is None


def test_the_same_cause_says_the_same_for_every_pod_and_try() -> None:
    words = 'rpc error: code = Internal desc = pods "svc-7d9c-x2x1z" 0x{} at 2026-01-02T03:04:0{}Z'
    said = {of_pod([_mount(n, words.format(n, n))], "llm") for n in range(1, 4)}
    assert len(said) == 1


def test_a_claim_without_a_storage_class_is_for_a_human() -> None:
    found = of_claim("w", [_event(1, "ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found')])
    assert found is not None
    assert (found.reason, found.lasting) == ("VolumeNotBound", True)
    assert "PersistentVolumeClaim w is not bound" in found.message
    assert "create StorageClass fast" in found.message


def test_a_claim_whose_provisioner_fails_may_still_be_bound() -> None:
    found = of_claim("w", [_event(1, "ProvisioningFailed", "failed to provision volume: quota of the project reached")])
    assert found is not None
    assert (found.reason, found.lasting) == ("VolumeNotBound", False)
    assert of_claim("w", [_event(1, "FailedBinding", "no persistent volumes available", "Normal")]) is None


def test_claims_of_a_template() -> None:
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "w", "persistentVolumeClaim": {"claimName": "weights"}}]
    assert claims({"spec": {"volumes": volumes}}) == ["weights"]
    assert claims({}) == []
