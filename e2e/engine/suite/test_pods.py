"""Two real engines as pods of a real control plane: they serve, are pressed, are joined by a third, are rolled."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.engine.install import VERSION, Engine
from e2e.engine.models import MODELS
from e2e.engine.preloaded import environment
from e2e.engine.subjects import BLOCKS
from e2e.eventually import eventually
from e2e.fleet.load import LoadReport
from e2e.fleet.realvllm import COMMAND
from e2e.labrun import Lab, LabOptions
from e2e.look import H100, Look, manifest
from plimsoll.api import names

pytestmark = pytest.mark.timeout(900)

BLOCK_BYTES: Final = 32_768
ARGUMENTS: Final = (
    *("--load-format", "dummy", "--enforce-eager", "--distributed-executor-backend", "uni", "--block-size", "32"),
    *("--kv-cache-memory-bytes", str(BLOCKS * BLOCK_BYTES)),
)
SETTINGS: Final = {
    "PLIMSOLL_METRICS_INTERVAL_SECONDS": "2",
    "PLIMSOLL_METRICS_WINDOW_SECONDS": "20",
    "PLIMSOLL_METRICS_STALE_SECONDS": "30",
    "PLIMSOLL_SCALE_DOWN_SECONDS": "600",
}
SLOW_SECONDS: Final = 240.0


@pytest.fixture(scope="module")
def lab(engine: Engine, vllm: Sequence[str]) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(COMMAND, json.dumps([*environment(engine), *vllm]))
        with Lab(LabOptions(nodes=f"1*{H100}:4", operator_env=SETTINGS)) as lab:
            yield lab


def _apply(look: Look, model: Path, sequences: int) -> None:
    engine = {
        "version": VERSION,
        "image": f"vllm/vllm-openai-cpu:v{VERSION}",
        "extraArgs": [*ARGUMENTS, "--max-num-seqs", str(sequences)],
    }
    of_model = {"id": str(model), "configRef": {"name": "facts", "key": "config.json"}}
    scaling = {"mode": "Auto", "minReplicas": 2, "maxReplicas": 3}
    look.kubectl.apply(
        manifest("tiny", look.namespace, model=of_model, contextTokens=1024, engine=engine, scaling=scaling)
    )


@contextmanager
def _load(lab: Lab, look: Look, rate: float, output_tokens: int) -> Iterator[LoadReport]:
    """Requests until the block is left; the report is complete then."""
    assert lab.fleet is not None
    fleet, stop, report = lab.fleet, threading.Event(), LoadReport()
    requests = fleet.fleet.load(
        look.namespace,
        {names.LABEL_SERVICE: "tiny"},
        rate=rate,
        prompt_tokens=100,
        output_tokens=output_tokens,
        seconds=600,
        enough=lambda seen: stop.is_set() or bool(vars(report).update(vars(seen))),
    )
    sending = fleet.submit(requests)
    try:
        yield report
    finally:
        stop.set()
        vars(report).update(vars(sending.result()))


def test_real_engines_are_pods(lab: Lab, namespace: str, tiny_models: Path) -> None:
    look = Look(lab, namespace)
    model = tiny_models / "llama"
    facts = {
        "metadata": {"name": "facts", "namespace": namespace},
        "data": {"config.json": json.dumps(MODELS["llama"])},
    }
    look.kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", **facts})
    _apply(look, model, sequences=32)
    eventually(lambda: look.is_ready("tiny") and len(_ready(look)) == 2, within_seconds=SLOW_SECONDS)

    with _load(lab, look, rate=1.0, output_tokens=5) as light:
        eventually(lambda: light.succeeded >= 4, within_seconds=60)
    assert not light.failures

    with _load(lab, look, rate=6.0, output_tokens=500) as heavy:
        eventually(lambda: _asked(lab, "max(vllm:kv_cache_usage_perc)") > 0.9, within_seconds=SLOW_SECONDS)
        eventually(lambda: _asked(lab, "sum(rate(vllm:num_preemptions_total[30s]))") > 0, within_seconds=SLOW_SECONDS)
        look.observed("tiny", "KVBound", within_seconds=SLOW_SECONDS)
        eventually(lambda: len(_ready(look)) == 3, within_seconds=SLOW_SECONDS)
    assert not heavy.failures

    before = {pod["metadata"]["name"] for pod in _ready(look)}
    with _load(lab, look, rate=1.0, output_tokens=40) as during:
        _apply(look, model, sequences=16)
        eventually(lambda: _rolled(look, before), within_seconds=2 * SLOW_SECONDS)
    assert during.succeeded > 0
    assert not during.failures


def _ready(look: Look) -> list[dict[str, Any]]:
    def is_ready(pod: dict[str, Any]) -> bool:
        conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
        return conditions.get("Ready") == "True" and not pod["metadata"].get("deletionTimestamp")

    return [pod for pod in look.all("pods") if is_ready(pod)]


def _asked(lab: Lab, query: str) -> float:
    found = lab.plane.query(query)
    return float(found[0]["value"][1]) if found else 0.0


def _rolled(look: Look, before: set[str]) -> bool:
    pods = look.all("pods")
    new = [pod for pod in _ready(look) if "16" in pod["spec"]["containers"][0]["args"]]
    return len(new) >= 2 and not before & {pod["metadata"]["name"] for pod in pods}
