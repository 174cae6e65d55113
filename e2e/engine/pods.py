"""Real engines as pods of a lab: the control plane, Prometheus and the operator are real too, only nodes are played."""

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from e2e.engine.install import VERSION, Engine
from e2e.engine.models import MODELS
from e2e.engine.preloaded import environment
from e2e.engine.subjects import BLOCKS
from e2e.eventually import eventually
from e2e.fleet.load import LoadReport
from e2e.fleet.realvllm import COMMAND
from e2e.labrun import Lab, LabOptions
from e2e.look import H100, Look, manifest
from plimsoll.api import findings, names

NAME: Final = "tiny"
CONTEXT_TOKENS: Final = 1024
_BLOCK_BYTES: Final = 32_768
# What makes a tiny model with random weights of it, and a pool that a few requests fill.
ARGUMENTS: Final = (
    *("--load-format", "dummy", "--enforce-eager", "--distributed-executor-backend", "uni", "--block-size", "32"),
    *("--kv-cache-memory-bytes", str(BLOCKS * _BLOCK_BYTES)),
)
SETTINGS: Final = {
    "PLIMSOLL_METRICS_INTERVAL_SECONDS": "2",
    "PLIMSOLL_METRICS_WINDOW_SECONDS": "20",
    "PLIMSOLL_METRICS_STALE_SECONDS": "30",
    "PLIMSOLL_SCALE_DOWN_SECONDS": "600",
}
# Twenty and more a replica, of 250 tokens each on average: more than a pool holds, however fast the machine is.
CLIENTS: Final = 64
SLOW_SECONDS: Final = 240.0
FULL: Final = 0.9

Tell = Callable[[str], None]


@contextmanager
def real_lab(engine: Engine, vllm: Sequence[str], log: Tell = print) -> Iterator[Lab]:
    """A lab whose containers of the CPU image are real engines."""
    os.environ[COMMAND] = json.dumps([*environment(engine), *vllm])
    try:
        with Lab(LabOptions(nodes=f"1*{H100}:4", operator_env=SETTINGS), log=log) as lab:
            yield lab
    finally:
        del os.environ[COMMAND]


class Story:
    """Two replicas of a tiny model, from their first pod to a roll-out under load."""

    def __init__(self, lab: Lab, namespace: str, model: Path, tell: Tell) -> None:
        self._lab, self._model, self._tell = lab, model, tell
        self._look = Look(lab, namespace)

    def begins(self) -> None:
        """Apply the service; return when two real servers are Ready."""
        data = {"config.json": json.dumps(MODELS[self._model.name])}
        facts = {"metadata": {"name": "facts", "namespace": self._look.namespace}, "data": data}
        self._look.kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", **facts})
        self._apply(sequences=32)
        eventually(lambda: self._look.is_ready(NAME) and len(self.ready()) == 2, within_seconds=SLOW_SECONDS)
        self._tell(f"Ready: {', '.join(pod['metadata']['name'] for pod in self.ready())}, each a real vLLM {VERSION}")

    def answers(self) -> None:
        """A few completions through the pods."""
        with self._load(rate=1.0, output_tokens=5) as light:
            eventually(lambda: light.succeeded >= 4, within_seconds=60)
        assert not light.failures, light.failures
        self._tell(f"{light.succeeded} completions, none failed")

    def is_pressed(self) -> None:
        """Load until the pool is full and requests are preempted; the operator says why and adds a replica."""
        with self._load(rate=10.0, output_tokens=300, at_once=CLIENTS) as heavy:
            self._until("max(vllm:kv_cache_usage_perc)", FULL)
            self._until("sum(increase(vllm:num_preemptions_total[1m]))", 0)
            self._look.observed(NAME, findings.KV_BOUND.name, within_seconds=SLOW_SECONDS)
            self._tell(f"the operator sees the bottleneck: {findings.KV_BOUND.name}")
            eventually(lambda: len(self.ready()) == 3, within_seconds=SLOW_SECONDS)
            told = self._look.get("vllmservices", NAME)["status"]["decisions"][-1]
            self._tell(f"a third replica is Ready: {told['reason']}. {told['message']}")
        assert not heavy.failures, heavy.failures

    def is_rolled(self) -> None:
        """Change a flag while requests are in flight; none is lost."""
        before = {pod["metadata"]["name"] for pod in self.ready()}
        with self._load(rate=1.0, output_tokens=40) as during:
            self._apply(sequences=16)
            eventually(lambda: self._rolled(before), within_seconds=2 * SLOW_SECONDS)
        assert during.succeeded, during
        assert not during.failures, during.failures
        self._tell(
            f"--max-num-seqs 32 -> 16 rolled out; {during.succeeded} requests meanwhile, none lost "
            f"({during.asked_again.total()} asked again)"
        )

    def ready(self) -> list[dict[str, Any]]:
        """Pods that are Ready and stay."""
        return [pod for pod in self._look.all("pods") if _is_ready(pod)]

    def _apply(self, sequences: int) -> None:
        image, arguments = f"vllm/vllm-openai-cpu:v{VERSION}", [*ARGUMENTS, "--max-num-seqs", str(sequences)]
        engine = {"version": VERSION, "image": image, "extraArgs": arguments}
        model = {"id": str(self._model), "configRef": {"name": "facts", "key": "config.json"}}
        scaling = {"mode": "Auto", "minReplicas": 2, "maxReplicas": 3}
        spec: dict[str, Any] = {"model": model, "contextTokens": CONTEXT_TOKENS, "engine": engine, "scaling": scaling}
        self._look.kubectl.apply(manifest(NAME, self._look.namespace, **spec))

    def _until(self, query: str, above: float) -> None:
        def there() -> float:
            found = self._lab.plane.query(query)
            value = float(found[0]["value"][1]) if found else 0.0
            return value if value > above else 0.0

        self._tell(f"Prometheus: {query} = {eventually(there, within_seconds=SLOW_SECONDS):.2f}")

    def _rolled(self, before: set[str]) -> bool:
        new = [pod for pod in self.ready() if "16" in pod["spec"]["containers"][0]["args"]]
        return len(new) >= 2 and not before & {pod["metadata"]["name"] for pod in self._look.all("pods")}

    @contextmanager
    def _load(self, rate: float, output_tokens: int, at_once: int = 1000) -> Iterator[LoadReport]:
        """Requests until the block is left; the report is whole then."""
        assert self._lab.fleet is not None
        fleet, stop, report = self._lab.fleet, threading.Event(), LoadReport()

        def enough(seen: LoadReport) -> bool:
            vars(report).update(vars(seen))
            return stop.is_set()

        requests = fleet.fleet.load(
            self._look.namespace,
            {names.LABEL_SERVICE: NAME},
            rate=rate,
            prompt_tokens=100,
            output_tokens=output_tokens,
            seconds=900,
            at_once=at_once,
            ask_again=True,  # a real server closes connections that were idle, and one may have been chosen just then
            enough=enough,
        )
        sending = fleet.submit(requests)
        try:
            yield report
        finally:
            stop.set()
            vars(report).update(vars(sending.result()))


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
    return conditions.get("Ready") == "True" and not pod["metadata"].get("deletionTimestamp")
