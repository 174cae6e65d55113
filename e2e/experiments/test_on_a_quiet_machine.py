"""Experiments on the whole chain: real Deployments, a real Prometheus, engines that obey --max-num-seqs."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pytest

from e2e.controlplane.kubectl import Kubectl
from e2e.eventually import eventually
from e2e.fleet.vllm import TIME_FACTOR
from e2e.labrun import Lab, LabOptions
from e2e.look import Apply, Look, applier
from e2e.watching import Watching
from plimsoll.api import names
from plimsoll.cli.history import SAME, differing, from_file

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(400)]

Json = dict[str, Any]

L4: Final = "NVIDIA-L4"
BY_MISTAKE: Final[Json] = {
    "model": {"id": "Qwen/Qwen3-8B"},
    "hardware": {"gpu": L4, "maxGPUs": 8},
    "contextTokens": 4096,
    "load": {"concurrency": 4, "promptTokens": 16, "outputTokens": 20},
    "slo": {"ttft": "4s", "itl": "400ms"},
    "scaling": {"minReplicas": 6, "maxReplicas": 6},
}
"""A load of four at once was declared, so few may run; many more come. Six pods, and room for canary and control."""
ANSWERS: Final = (12, 20, 28)
"""Tokens. Were all as long, those that a new pod begins with would end together for ever, now and then between two
scrapes.
"""
AT_ONCE: Final = 192
"""Requests at once, as long as they come: six pods with a cap of 16 run half of them, with twice the cap all. While
canary and control are there each of eight has 24: the canary runs them all, its control 16. No queue grows, however
busy the machine is that runs all this."""
BEFORE, AFTER = "--max-num-seqs=16", "--max-num-seqs=32"

SMALL: Final[Json] = {
    **BY_MISTAKE,
    "hardware": {"gpu": L4, "maxGPUs": 4},
    "slo": {"ttft": "4s", "itl": "1s"},
    "scaling": {"minReplicas": 2, "maxReplicas": 2},
}
"""The same mistake in small: several of these fit beside each other."""
TOO_MANY: Final = 48
"""Requests at once for two pods of which each runs 16, for as long as they come: nobody's queue grows."""
FLAGS: Final = {
    "mode": "Auto",
    "allow": ["MaxNumSeqs", "MaxNumBatchedTokens", "PrefixCaching", "KVCacheMemoryBytes", "GPUMemoryUtilization"],
}
ONE_FLAG: Final = {"mode": "Auto", "allow": ["MaxNumSeqs"]}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabOptions(nodes=f"3*{L4}:8", load_seconds=1.0)) as lab:
        yield lab


@pytest.fixture(scope="module")
def kubectl(lab: Lab) -> Kubectl:
    return lab.plane.kubectl


@contextmanager
def load(lab: Lab, look: Look, name: str, *, at_once: int) -> Iterator[None]:
    """Requests for a service, canary and control included, so many at once until the block is left."""
    assert lab.fleet is not None
    fleet, pods, each = lab.fleet, {names.LABEL_SERVICE: name}, at_once // len(ANSWERS)
    requests = [
        fleet.fleet.load(
            look.namespace, pods, rate=20, prompt_tokens=16, output_tokens=tokens, seconds=900, at_once=each
        )
        for tokens in ANSWERS
    ]
    sending = [fleet.submit(load) for load in requests]
    try:
        yield
    finally:
        for load in sending:
            load.cancel()


def test_a_bad_sequence_cap_heals_itself_and_a_person_takes_it_back(lab: Lab, apply: Apply, look: Look) -> None:
    apply("svc", **BY_MISTAKE, podTemplate=_slowed(0.08), tuning=ONE_FLAG)
    look.until("svc", "Ready", "True")
    assert BEFORE in look.args("svc")
    spec = look.get("vllmservices", "svc")["spec"]
    with load(lab, look, "svc", at_once=AT_ONCE):
        look.until("svc", names.EXPERIMENTING, "True", "Trying")
        eventually(lambda: {"svc-canary", "svc-control"} <= _deployments(look))
        assert AFTER in look.args("svc-canary")
        assert look.args("svc-control") == look.args("svc")
        tracks = {pod["metadata"]["labels"][names.LABEL_TRACK] for pod in look.all("pods")}
        assert tracks <= {names.TRACK_MAIN, names.TRACK_CANARY, names.TRACK_CONTROL}
        _kill_the_operator_in_the_middle_of_measuring(lab, look)
        eventually(lambda: AFTER in look.args("svc"), within_seconds=220, otherwise=lambda: look.trials("svc"))
    look.until("svc", "Ready", "True")
    eventually(lambda: _deployments(look) == {"svc"})
    told = look.get("vllmservices", "svc")
    assert told["spec"] == spec
    assert "time to first token -" in told["status"]["tuning"]["experiment"]["verdict"]
    lab.plane.kubectl("annotate", "vllm", "svc", "-n", look.namespace, f"{names.ANNOTATION_EXPERIMENT}=revert")
    eventually(lambda: BEFORE in look.args("svc"), within_seconds=30, otherwise=lambda: look.trials("svc"))
    eventually(lambda: _outcome(look, "svc") == "reverted", within_seconds=120, otherwise=lambda: look.trials("svc"))
    _decide_all_of_it_again(lab, look)


def _decide_all_of_it_again(lab: Lab, look: Look) -> None:
    """From the log of both operators: each entry with grounds comes out the same."""
    assert lab.operator is not None
    entries = from_file(str(lab.operator.process.log), "svc", look.namespace)
    assert isinstance(entries, list)
    assert differing(entries) == []
    same = {f"{each['kind']} {each['reason']}" for each in entries if each.get("again") == SAME}
    assert same >= {"Plan FirstPlan", "Retune Trying", "Retune Keeping", "Retune Reverted"}


def _kill_the_operator_in_the_middle_of_measuring(lab: Lab, look: Look) -> None:
    """The next one finds the experiment in the status and its windows in Prometheus, and goes on."""
    assert lab.operator is not None
    eventually(lambda: _measured_seconds(look, "svc") > 30, within_seconds=90, otherwise=lambda: look.trials("svc"))
    before = _experiment(look, "svc"), _uids(look, "svc")
    lab.operator.kill()
    lab.operator.await_ready()
    look.until("svc", names.EXPERIMENTING, "True", "Trying")
    assert (_experiment(look, "svc"), _uids(look, "svc")) == before


def _let_each_fail(lab: Lab, look: Look) -> None:
    """As soon as it takes requests, whichever is first: who waited for the others would be judged meanwhile."""
    left = dict(FAILURES)

    def all_failed() -> bool:
        for name in [name for name in left if _takes_requests(look, name)]:
            left.pop(name)(lab, look, name)
        return not left

    eventually(all_failed, within_seconds=180, otherwise=lambda: "; ".join(look.trials(name) for name in left))


@dataclass(frozen=True)
class Side:
    """Six services under pressure side by side, and all states of their Deployments."""

    look: Look
    seen: Watching
    before: dict[str, tuple[int, set[str]]]
    """Of each service without load: the generation of its Deployment, and its pods."""

    def untouched(self, name: str) -> bool:
        """The fleet's Deployment is what it was, all the time, and so are its pods."""
        seen = {m["generation"] for m in self._deployments(name) if m["name"] == name}
        return (seen, _uids(self.look, name)) == ({self.before[name][0]}, self.before[name][1])

    def beside(self, name: str) -> set[str]:
        """Deployments that the service has had beside its fleet's."""
        return {meta["name"] for meta in self._deployments(name)} - {name}

    def _deployments(self, name: str) -> list[Json]:
        found = (state["metadata"] for state in self.seen.states())
        return [meta for meta in found if meta["labels"][names.LABEL_SERVICE] == name]


def _delete_the_canary(lab: Lab, look: Look, name: str) -> None:
    lab.plane.kubectl("delete", "deployment", f"{name}-canary", "-n", look.namespace)


def _fault(kind: str) -> Callable[[Lab, Look, str], None]:
    def fault(lab: Lab, look: Look, name: str) -> None:
        assert lab.fleet is not None
        lab.fleet.run(lab.fleet.fleet.fault_pod(look.namespace, _canary(look, name), kind))

    return fault


FAILURES: Final = {"crashes": _fault("crash"), "hangs": _fault("hang"), "vanishes": _delete_the_canary}
"""What becomes of a service's canary while it takes users' requests."""
LEFT_ALONE: Final[dict[str, Json]] = {
    "told": {**SMALL, "tuning": {"mode": "Recommend"}},
    "pinned": {**SMALL, "tuning": FLAGS, "engine": {"extraArgs": [BEFORE]}},
    "slow": {**SMALL, "tuning": FLAGS, "slo": {"ttft": "100ms", "itl": "400ms"}},
}
FEW: Final = 9
"""At once for `slow`: its engines are too slow for any request, and no flag mends that."""


@pytest.fixture(scope="module")
def side(lab: Lab, kubectl: Kubectl) -> Iterator[Side]:
    """As soon as an experiment with one of them takes requests its canary fails."""
    namespace = f"test-{secrets.token_hex(4)}"
    kubectl("create", "namespace", namespace)
    eventually(lambda: kubectl("get", "serviceaccount", "default", "-n", namespace, "--ignore-not-found"))
    apply, look = applier(kubectl, namespace), Look(lab, namespace)
    specs = {name: {**SMALL, "tuning": ONE_FLAG} for name in FAILURES} | LEFT_ALONE
    for name, spec in specs.items():
        apply(name, **spec, podTemplate=_slowed(0.02))
    for name in specs:
        look.until(name, "Ready", "True")
    before = {name: (_generation(look, name), _uids(look, name)) for name in specs}
    with Watching(kubectl, "deployments", "-n", namespace) as seen, ExitStack() as loads:
        for name in specs:
            loads.enter_context(load(lab, look, name, at_once=FEW if name == "slow" else TOO_MANY))
        _let_each_fail(lab, look)
        yield Side(look, seen, before)
    kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("crashes", "the canary failed: "),
        ("hangs", "nothing was heard of the canary"),
        ("vanishes", "the canary is gone"),
    ],
)
def test_a_canary_that_fails_changes_nothing_and_is_not_tried_again(side: Side, name: str, why: str) -> None:
    look = side.look
    eventually(lambda: _outcome(look, name) == "rolled back", within_seconds=90, otherwise=lambda: look.trials(name))
    assert look.get("vllmservices", name)["status"]["tuning"]["past"][-1]["why"].startswith(why)
    eventually(lambda: side.untouched(name))  # once canary and control are gone
    assert BEFORE in look.args(name)
    assert side.beside(name) == {f"{name}-canary", f"{name}-control"}
    look.observed(name, "SequenceCapBound")  # as before: without canary and control many wait again
    said = look.until(name, names.EXPERIMENTING, "False", "NoExperiment")["message"]
    assert f"the last one (--max-num-seqs 32): rolled back, {why}" in said
    assert "recommendation" not in look.get("vllmservices", name)["status"]


@pytest.mark.parametrize(
    ("name", "finding", "reason"),
    [
        pytest.param("told", "SequenceCapBound", "Proposed", id="Recommend tells, and writes nothing"),
        pytest.param("pinned", "SequenceCapBound", "NoExperiment", id="a flag of the user's is nobody else's"),
        pytest.param("slow", "ComputeBound", "NoExperiment", id="no flag helps an engine that is too slow"),
    ],
)
def test_under_the_same_pressure_nothing_is_touched(side: Side, name: str, finding: str, reason: str) -> None:
    """For as long as others beside it found out, began, and ended an experiment."""
    look = side.look
    eventually(lambda: all(_outcome(look, other) for other in FAILURES), within_seconds=120)
    look.observed(name, finding)
    look.until(name, names.EXPERIMENTING, "False", reason)
    assert side.untouched(name)
    assert side.beside(name) == set()
    service = look.get("vllmservices", name)
    assert service["metadata"]["generation"] == 1
    assert "tuning" not in service["status"]
    assert service["status"].get("recommendation", {}).get("setting") == ("MaxNumSeqs" if name == "told" else None)
    assert len(look.all("controllerrevisions")) == len(side.before)


def _slowed(factor: float) -> Json:
    """Engines at so much of the usual speed (0.08: a step takes 0.15 s), so that few requests fill one."""
    return {"spec": {"containers": [{"name": "vllm", "env": [{"name": TIME_FACTOR, "value": str(factor)}]}]}}


def _generation(look: Look, name: str) -> int:
    return int(look.get("deployments", name)["metadata"]["generation"])


def _deployments(look: Look) -> set[str]:
    return {each["metadata"]["name"] for each in look.all("deployments")}


def _pods(look: Look, name: str) -> list[Json]:
    """Of a service, those that are leaving left out."""
    found = (pod["metadata"] for pod in look.all("pods"))
    return [m for m in found if m["labels"][names.LABEL_SERVICE] == name and "deletionTimestamp" not in m]


def _uids(look: Look, name: str) -> set[str]:
    return {meta["uid"] for meta in _pods(look, name)}


def _canary(look: Look, name: str) -> str:
    canaries = [m for m in _pods(look, name) if m["labels"][names.LABEL_TRACK] == names.TRACK_CANARY]
    return str(canaries[0]["name"])


def _experiment(look: Look, name: str) -> Json:
    found: Json = look.get("vllmservices", name)["status"].get("tuning", {}).get("experiment", {})
    return found


def _takes_requests(look: Look, name: str) -> bool:
    return _experiment(look, name).get("phase") in ("Warming", "Measuring")


def _measured_seconds(look: Look, name: str) -> float:
    found = _experiment(look, name)
    return time.time() - datetime.fromisoformat(found["since"]).timestamp() if found["phase"] == "Measuring" else 0.0


def _outcome(look: Look, name: str) -> str:
    """Of the only experiment there was."""
    past = look.get("vllmservices", name)["status"].get("tuning", {}).get("past", [])
    assert len(past) <= 1
    return past[0]["outcome"] if past else ""
