"""PodMonitor and InferencePool: whom they select, and what their owner may add."""

from plimsoll.api import names
from plimsoll.api.routing import EndpointPicker
from plimsoll.core.manifests.identity import Owner, pod_labels, traffic_selector, worker_labels
from plimsoll.core.manifests.inferencepool import inference_pool
from plimsoll.core.manifests.podmonitor import pod_monitor

OWNER = Owner("ns", "svc", "u")


def test_a_monitor_scrapes_every_engine_a_canary_too_and_no_worker() -> None:
    selector = pod_monitor(OWNER, {})["spec"]["selector"]["matchLabels"]
    for track in (names.TRACK_MAIN, names.TRACK_CANARY, names.TRACK_CONTROL):
        assert selector.items() <= pod_labels("svc", track).items()
    assert not selector.items() <= worker_labels("svc").items()


def test_prometheus_finds_the_monitor_by_the_owners_labels_and_ours_win() -> None:
    labels = pod_monitor(OWNER, {"release": "prom", names.LABEL_MANAGED_BY: "me"})["metadata"]["labels"]
    assert labels["release"] == "prom"
    assert labels[names.LABEL_MANAGED_BY] == names.MANAGED_BY


def test_a_pool_takes_the_pods_of_the_service_and_names_the_users_picker() -> None:
    spec = inference_pool(OWNER, EndpointPicker(service="epp", port=9003, failure_mode="FailOpen"))["spec"]
    assert spec["selector"]["matchLabels"] == traffic_selector("svc")
    assert spec["endpointPickerRef"]["name"] == "epp"
    assert spec["endpointPickerRef"]["port"] == {"number": 9003}
    assert spec["endpointPickerRef"]["failureMode"] == "FailOpen"
