"""How long a pod loads: each part moves with what it depends on, and the budget is never shorter than the estimate."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.weights import WeightsSource
from plimsoll.core.lifecycle.startup import (
    BYTES_PER_SECOND,
    LEAST_PROBE_SECONDS,
    Load,
    SourceKind,
    fetches,
    source_kind,
    startup,
)
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.policy import read_policy
from tests.unit.core.plan.asking import H100, L40S, plan

SMALL = Load(source="hub", read_bytes=16 * 10**9, ranks=1, layers=32, captured_sizes=67, fetched_bytes=16 * 10**9)
KINDS: tuple[SourceKind, ...] = ("hub", "pvc", "hostPath", "image")

loads = st.builds(
    Load,
    source=st.sampled_from(KINDS),
    read_bytes=st.integers(0, 2 * 10**12),
    ranks=st.integers(1, 16),
    layers=st.integers(1, 200),
    captured_sizes=st.integers(0, 100),
    experts=st.booleans(),
    eager=st.booleans(),
    fetched_bytes=st.integers(0, 2 * 10**12),
    pulled_bytes=st.integers(0, 2 * 10**12),
)


@given(loads)
def test_every_time_leaves_room_for_the_one_before(load: Load) -> None:
    found = startup(load)
    parts = (found.fetch_seconds, found.read_seconds, found.process_seconds, found.compile_seconds)
    assert found.seconds == sum(parts) + found.capture_seconds
    assert found.probe_seconds >= max(2 * found.seconds, LEAST_PROBE_SECONDS)
    assert found.deadline_seconds > found.probe_seconds


@given(loads, st.integers(1, 10**12))
def test_more_bytes_never_load_faster(load: Load, more: int) -> None:
    assert startup(replace(load, read_bytes=load.read_bytes + more)).seconds >= startup(load).seconds


@pytest.mark.parametrize(
    ("change", "part", "seconds"),
    [
        pytest.param({}, "fetch_seconds", 130, id="16 GB over one gigabit line"),
        pytest.param({"fetched_bytes": 0}, "fetch_seconds", 0, id="nothing to fetch"),
        pytest.param({"source": "pvc"}, "read_seconds", 80, id="a shared file system"),
        pytest.param({"source": "image"}, "read_seconds", 40, id="the node's own disk"),
        pytest.param({"eager": True, "captured_sizes": 0}, "compile_seconds", 0, id="eager compiles nothing"),
        pytest.param({"eager": True, "captured_sizes": 0}, "capture_seconds", 0, id="and captures nothing"),
        pytest.param({"layers": 80}, "compile_seconds", 110, id="more layers compile longer"),
        pytest.param({"experts": True}, "compile_seconds", 190, id="kernels of experts are built"),
        pytest.param({"ranks": 8}, "process_seconds", 100, id="eight ranks"),
    ],
)
def test_each_part(change: dict[str, object], part: str, seconds: int) -> None:
    assert getattr(startup(replace(SMALL, **change)), part) == seconds  # type: ignore[arg-type]


def test_the_owners_figures_replace_ours() -> None:
    fast = startup(replace(SMALL, bytes_per_second={**BYTES_PER_SECOND, "hub": 10**9}))
    assert fast.fetch_seconds == 20
    assert "at 1000 MB/s" in fast.basis


def test_the_users_timeout_replaces_the_probes_budget_only() -> None:
    found = startup(SMALL, timeout_seconds=2700)
    assert (found.probe_seconds, found.seconds) == (2700, startup(SMALL).seconds)


def test_a_large_image_of_weights_moves_the_deadline_and_not_the_probe() -> None:
    image = replace(SMALL, source="image", fetched_bytes=0)
    pulled = startup(replace(image, pulled_bytes=140 * 10**9))
    assert pulled.probe_seconds == startup(image).probe_seconds
    assert pulled.deadline_seconds - startup(image).deadline_seconds == 1400


@pytest.mark.parametrize(
    ("source", "fetched", "read"),
    [
        pytest.param(None, True, "the pod's own disk", id="the hub is the default"),
        pytest.param({"hub": {}}, True, "the pod's own disk", id="the hub"),
        pytest.param({"pvc": {"claimName": "m"}}, True, "the claim", id="a claim that caches"),
        pytest.param({"pvc": {"claimName": "m", "path": "qwen"}}, False, "the claim", id="a folder of a claim"),
        pytest.param({"hostPath": {"path": "/mnt"}}, True, "the node", id="a folder of the node"),
        pytest.param({"image": {"reference": "m:1"}}, False, "the image", id="an image of weights"),
    ],
)
def test_a_plan_states_where_its_budget_comes_from(source: dict[str, object] | None, fetched: bool, read: str) -> None:
    allowed = Inventory(policy=read_policy({"allow": {"hostPaths": ["/mnt"]}}))
    found = plan("Qwen/Qwen3-8B", L40S, 8192, source=source, inventory=allowed).startup
    assert (found.fetch_seconds > 0) is fetched
    assert f"GB from {read} at" in found.basis


def test_larger_models_get_longer_budgets() -> None:
    small, large = plan("Qwen/Qwen3-8B", H100, 8192), plan("Qwen/Qwen3-235B-A22B-FP8", H100, 8192)
    assert large.startup.probe_seconds > 2 * small.startup.probe_seconds


def test_the_budget_and_the_deadline_follow_from_the_estimate() -> None:
    """Parts of 130, 40, 60, 70 and 50 seconds; twice as much for the probe; 30 GB at 100 MB/s and two minutes more."""
    found = startup(SMALL)
    assert (found.fetch_seconds, found.read_seconds, found.process_seconds) == (130, 40, 60)
    assert (found.compile_seconds, found.capture_seconds, found.seconds) == (70, 50, 350)
    assert (found.probe_seconds, found.deadline_seconds) == (700, 120 + 300 + 700)
    pulled = startup(replace(SMALL, pulled_bytes=10 * 10**9))
    assert pulled.deadline_seconds == 120 + 400 + 700
    asked = startup(SMALL, 99.5)
    assert (asked.probe_seconds, asked.deadline_seconds) == (100, 120 + 300 + 100)
    short = startup(replace(SMALL, fetched_bytes=0, read_bytes=0, layers=0, captured_sizes=0, eager=True))
    assert (short.seconds, short.probe_seconds) == (60, LEAST_PROBE_SECONDS)


@pytest.mark.parametrize(
    ("source", "model", "kind", "fetched"),
    [
        pytest.param(None, "Qwen/Qwen3-8B", "hub", True, id="a name"),
        pytest.param(None, "/models/qwen", "image", False, id="a path"),
        pytest.param(
            {"pvc": {"claimName": "c"}}, "Qwen/Qwen3-8B", "pvc", True, id="a claim that keeps what is fetched"
        ),
        pytest.param(
            {"pvc": {"claimName": "c", "path": "qwen"}}, "Qwen/Qwen3-8B", "pvc", False, id="a claim with the model"
        ),
        pytest.param({"hostPath": {"path": "/models"}}, "Qwen/Qwen3-8B", "hostPath", True, id="a node's directory"),
        pytest.param(
            {"image": {"reference": "registry.example/qwen:1"}}, "Qwen/Qwen3-8B", "image", False, id="an image"
        ),
    ],
)
def test_where_weights_come_from(source: dict[str, object] | None, model: str, kind: str, fetched: bool) -> None:
    given = None if source is None else WeightsSource.model_validate(source)
    assert (source_kind(given, model), fetches(given, model)) == (kind, fetched)


@pytest.mark.parametrize(
    ("source", "fetched", "says"),
    [
        ("hub", 16 * 10**9, "16.0 GB from the hub at 125 MB/s, 16.0 GB from the pod's own disk at 400 MB/s"),
        ("hub", 0, "16.0 GB from the pod's own disk at 400 MB/s"),
        ("pvc", 0, "16.0 GB from the claim at 200 MB/s"),
        ("hostPath", 0, "16.0 GB from the node at 400 MB/s"),
        ("image", 0, "16.0 GB from the image at 400 MB/s"),
    ],
)
def test_the_basis_says_what_is_read_and_how_fast(source: SourceKind, fetched: int, says: str) -> None:
    assert startup(replace(SMALL, source=source, fetched_bytes=fetched)).basis == says
