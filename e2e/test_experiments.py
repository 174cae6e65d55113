"""An experiment on the whole chain: real Deployments, a real Prometheus, engines that obey --max-num-seqs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from e2e.controlplane.kubectl import Kubectl
from e2e.eventually import eventually
from e2e.fleet.vllm import TIME_FACTOR
from e2e.labrun import Lab, LabOptions
from e2e.look import Apply, Look
from plimsoll.api import names

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(400)]

L4: Final = "NVIDIA-L4"
SLOW: Final = {"containers": [{"name": "vllm", "env": [{"name": TIME_FACTOR, "value": "0.08"}]}]}
"""A step takes 0.15 s, so that few requests a second fill an engine."""
BY_MISTAKE: Final[dict[str, Any]] = {
    "model": {"id": "Qwen/Qwen3-8B"},
    "hardware": {"gpu": L4, "maxGPUs": 8},
    "contextTokens": 4096,
    "load": {"concurrency": 4, "promptTokens": 16, "outputTokens": 20},
    "slo": {"ttft": "4s", "itl": "400ms"},
    "scaling": {"minReplicas": 6, "maxReplicas": 6},
    "podTemplate": {"spec": SLOW},
}
"""A load of four at once was declared, so few may run; many more come. Six pods, and room for canary and control."""
RATE: Final = 38
"""Requests a second, 3.3 s each. Six pods with the cap of 16 bear 29, with twice the cap 58. While canary and control
run, all eight bear 44: queues do not grow then, and with a long one the canary would be as full as its control."""
BEFORE, AFTER = "--max-num-seqs=16", "--max-num-seqs=32"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabOptions(nodes=f"1*{L4}:8", load_seconds=1.0)) as lab:
        yield lab


@pytest.fixture
def kubectl(lab: Lab) -> Kubectl:
    return lab.plane.kubectl


@contextmanager
def load(lab: Lab, look: Look, rate: float) -> Iterator[None]:
    """So many requests a second, until the block is left."""
    assert lab.fleet is not None
    fleet, stop = lab.fleet, threading.Event()
    requests = fleet.fleet.load(
        look.namespace,
        {names.LABEL_SERVICE: "svc"},
        rate=rate,
        prompt_tokens=16,
        output_tokens=20,
        seconds=600,
        enough=lambda _: stop.is_set(),
    )
    sending = threading.Thread(target=lambda: fleet.run(requests), daemon=True)
    sending.start()
    try:
        yield
    finally:
        stop.set()
        sending.join(30)


def test_a_bad_sequence_cap_heals_itself_and_a_person_takes_it_back(lab: Lab, apply: Apply, look: Look) -> None:
    apply("svc", **BY_MISTAKE, tuning={"mode": "Auto", "allow": ["MaxNumSeqs"]})
    look.until("svc", "Ready", "True")
    assert BEFORE in look.args("svc")
    spec = look.get("vllmservices", "svc")["spec"]
    with load(lab, look, rate=RATE):
        look.until("svc", names.EXPERIMENTING, "True", "Trying")
        eventually(lambda: {"svc-canary", "svc-control"} <= {d["metadata"]["name"] for d in look.all("deployments")})
        assert AFTER in look.args("svc-canary")
        assert look.args("svc-control") == look.args("svc")
        tracks = {pod["metadata"]["labels"][names.LABEL_TRACK] for pod in look.all("pods")}
        assert tracks <= {names.TRACK_MAIN, names.TRACK_CANARY, names.TRACK_CONTROL}
        eventually(lambda: AFTER in look.args("svc"), within_seconds=220, otherwise=lambda: look.trials("svc"))
    look.until("svc", "Ready", "True")
    eventually(lambda: [d["metadata"]["name"] for d in look.all("deployments")] == ["svc"])
    told = look.get("vllmservices", "svc")
    assert told["spec"] == spec
    assert "time to first token -" in told["status"]["tuning"]["experiment"]["verdict"]
    lab.plane.kubectl("annotate", "vllm", "svc", "-n", look.namespace, f"{names.ANNOTATION_EXPERIMENT}=revert")
    eventually(lambda: BEFORE in look.args("svc"), within_seconds=30, otherwise=lambda: look.trials("svc"))
    eventually(lambda: _outcomes(look) == ["reverted"], within_seconds=120, otherwise=lambda: look.trials("svc"))


def _outcomes(look: Look) -> list[str]:
    past = look.get("vllmservices", "svc")["status"].get("tuning", {}).get("past", [])
    return [each["outcome"] for each in past]
