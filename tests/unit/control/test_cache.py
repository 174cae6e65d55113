"""The cache believes the newest version, forgets only what a listing did not show, and wakes nobody for noise."""

from typing import Any

from plimsoll.adapters.ports import DEPLOYMENTS, JOBS, PODS, SERVICES
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key

SVC = Key("ns", "svc")


def _obj(name: str = "svc", version: int = 1, **fields: Any) -> dict[str, Any]:
    meta = {"namespace": "ns", "name": name, "resourceVersion": str(version), "labels": {names.LABEL_SERVICE: "svc"}}
    return {"metadata": meta, **fields}


def _pod(name: str, version: int, *, ready: str = "True", noise: str = "") -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready, "lastProbeTime": noise}], "containerStatuses": []}
    return _obj(name, version, status=status)


def test_an_older_version_never_replaces_a_newer_one() -> None:
    cache = Cache()
    cache.put(SERVICES, _obj(version=5, spec={"a": 5}))
    assert cache.put(SERVICES, _obj(version=4, spec={"a": 4})) is None
    stored = cache.get(SERVICES, "ns", "svc")
    assert stored is not None
    assert stored["spec"] == {"a": 5}


def test_what_was_read_before_is_never_older_than_what_is_kept() -> None:
    cache = Cache()
    cache.put(DEPLOYMENTS, _obj("svc", 5, spec={"a": 5}))
    read = cache.get(DEPLOYMENTS, "ns", "svc")
    assert cache.get(DEPLOYMENTS, "ns", "svc") is read, "read twice, parsed once"
    cache.put(DEPLOYMENTS, _obj("svc", 6, spec={"a": 6}))
    assert cache.children(SVC)[DEPLOYMENTS, "svc"]["spec"] == {"a": 6}
    cache.put(SERVICES, _obj("other", 7))
    cache.get(SERVICES, "ns", "other")
    cache.drop(DEPLOYMENTS, _obj("svc", 8))
    cache.put(DEPLOYMENTS, _obj("svc", 9, spec={"a": 9}))
    assert cache.children(SVC)[DEPLOYMENTS, "svc"]["spec"] == {"a": 9}


def test_a_late_delete_of_an_older_object_is_ignored() -> None:
    cache = Cache()
    cache.put(SERVICES, _obj(version=5))
    assert cache.drop(SERVICES, _obj(version=4)) is None
    assert cache.get(SERVICES, "ns", "svc") is not None


def test_a_child_wakes_its_service_and_is_found_by_it() -> None:
    cache = Cache()
    assert cache.put(DEPLOYMENTS, _obj(version=2, spec={})) == SVC
    assert list(cache.children(SVC)) == [(DEPLOYMENTS, "svc")]
    assert cache.drop(DEPLOYMENTS, _obj(version=3)) == SVC
    assert cache.children(SVC) == {}


def test_an_object_without_our_label_is_nobodys() -> None:
    obj = _obj()
    obj["metadata"]["labels"] = {}
    assert Cache().put(DEPLOYMENTS, obj) is None


def test_a_label_taken_from_what_is_ours_is_a_change_of_it() -> None:
    cache = Cache()
    cache.put(DEPLOYMENTS, _obj(version=1, spec={}))
    stripped = _obj(version=2, spec={})
    stripped["metadata"]["labels"] = {}
    assert cache.put(DEPLOYMENTS, stripped) == SVC
    kept = cache.get(DEPLOYMENTS, "ns", "svc")
    assert kept is not None
    assert kept["metadata"]["labels"] == {}


def test_pod_noise_wakes_nobody_a_flip_does() -> None:
    cache = Cache()
    assert cache.put(PODS, _pod("p", 1)) == SVC
    assert cache.put(PODS, _pod("p", 2, noise="later")) is None
    assert cache.put(PODS, _pod("p", 3, ready="False")) == SVC
    assert [pod.phase for pod in cache.pods(SVC)] == ["pending"]


def test_the_same_body_under_a_newer_version_wakes_nobody() -> None:
    cache = Cache()
    cache.put(DEPLOYMENTS, _obj(version=1, spec={"a": 1}))
    assert cache.put(DEPLOYMENTS, _obj(version=2, spec={"a": 1})) is None


def test_prune_forgets_what_the_listing_did_not_show_but_nothing_newer() -> None:
    cache = Cache()
    cache.put(DEPLOYMENTS, _obj("ghost", spec={}))
    since = cache.mark()
    cache.put(DEPLOYMENTS, _obj("newborn", spec={}))
    assert cache.prune(DEPLOYMENTS, [], since) == {SVC}
    assert [name for _, name in cache.children(SVC)] == ["newborn"]


def test_prune_of_one_namespace_leaves_the_others() -> None:
    cache = Cache()
    cache.put(SERVICES, _obj(version=1))
    assert cache.prune(SERVICES, [], cache.mark(), namespace="other") == set()
    assert list(cache.services()) == [SVC]


def test_of_a_job_only_its_end_is_kept() -> None:
    cache = Cache()
    begun = {"active": 1, "startTime": "2026-01-02T03:04:05Z"}
    assert cache.put(JOBS, _obj("gate", 1, status=begun)) == SVC
    assert cache.put(JOBS, _obj("gate", 2, status={**begun, "ready": 1})) is None
    over = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    assert cache.put(JOBS, _obj("gate", 3, status={"conditions": [over]})) == SVC
    kept = cache.get(JOBS, "ns", "gate")
    assert kept is not None
    assert kept["status"] == {"complete": False, "failed": "DeadlineExceeded"}
