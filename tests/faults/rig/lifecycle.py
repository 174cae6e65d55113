"""Scenarios of a service's life: made, changed, scaled, handed over, repaired, deleted."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from plimsoll.adapters.ports import CONFIG_MAPS, DEPLOYMENTS, JOBS, NETWORK_SERVICES, SERVICES
from plimsoll.api import names
from plimsoll.core.plan.model import bundled_config
from tests.faults.rig.scenario import Scenario, scenario
from tests.faults.world.control_loop import ready as is_ready_pod
from tests.faults.world.engines import Offered
from tests.faults.world.kubelet import GATE_PASSES
from tests.faults.world.world import NAMESPACE, PRODUCT, SETTINGS, USER, World, service

NAME = "qwen"


def nothing(_: World) -> None:
    """There is nothing yet."""


def running(**spec: Any) -> Any:
    """A service that is ready, and looked at once by whoever samples."""

    def prepare(world: World) -> None:
        world.apply(service(NAME, **spec))
        world.until(lambda: world.is_ready(NAME), what="ready")
        world.run(30)

    return prepare


def apply(**spec: Any) -> Any:
    """The spec, as it is applied then."""
    return lambda world: world.apply(service(NAME, **spec))


def ready(world: World) -> bool:
    """The service is as its present spec says."""
    return world.is_ready(NAME)


def replicas(count: int) -> Any:
    """So many pods, all of them ready."""

    def holds(world: World) -> Any:
        found = world.find(DEPLOYMENTS, NAME) or {"metadata": {}, "spec": {}}
        status = found.get("status") or {}
        figures = ("replicas", "updatedReplicas", "readyReplicas")
        seen = status.get("observedGeneration") == found["metadata"].get("generation")
        return seen and {status.get(each) for each in figures} == {count} and world.is_ready(NAME)

    return holds


def offered(requests_per_second: float) -> Any:
    """Traffic of the service from now on."""

    def act(world: World) -> None:
        world.ward.offered[NAMESPACE, NAME] = Offered(requests_per_second)

    return act


def _image(world: World) -> str:
    return str(world.must(DEPLOYMENTS, NAME)["spec"]["template"]["spec"]["containers"][0]["image"])


def _edit_image(world: World) -> None:
    containers = world.must(DEPLOYMENTS, NAME)["spec"]["template"]["spec"]["containers"]
    edited = [{**containers[0], "image": "somebody/else:1"}]
    world.edit(DEPLOYMENTS, NAME, {"spec": {"template": {"spec": {"containers": edited}}}})


def _gone(world: World) -> bool:
    return world.find(DEPLOYMENTS, NAME) is None and not world.pods() and world.find(SERVICES, NAME) is None


def _foreign(world: World) -> None:
    """A Deployment of somebody else's, with our service's name."""
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x:1"}]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    world.api.create(DEPLOYMENTS, {"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec}, USER)
    world.run(60)


def _refused(world: World) -> bool:
    return world.condition(NAME, names.STALLED).get("reason") == "NameConflict"


def _second_operator(world: World) -> None:
    running()(world)
    world.start_operator("second")
    world.run(30)


def _end_the_leader(world: World) -> None:
    world.apply(service(NAME, contextTokens=16384))
    for process in world.alive:
        if process.leads:
            process.terminate()


def _restart(world: World) -> None:
    world.edit(SERVICES, NAME, {"metadata": {"annotations": {names.ANNOTATION_RESTART: "once"}}}, by="kubectl-annotate")


def _restarted(world: World) -> Any:
    template = world.must(DEPLOYMENTS, NAME)["spec"]["template"]["metadata"]["annotations"]
    return template.get(names.ANNOTATION_RESTART) == "once" and replicas(1)(world)


def told(count: int) -> Any:
    """So many pods ready, and the status says so: of mere figures it does once a minute."""
    ready_pods = replicas(count)
    return lambda world: ready_pods(world) and world.must(SERVICES, NAME)["status"]["readyReplicas"] == count


def _busy(world: World) -> None:
    """Three replicas by demand, for longer than any window looks back."""
    running()(world)
    offered(30.0)(world)
    world.run(300)


MODEL: Final = {"id": "Qwen/Qwen3-8B", "configRef": {"name": "house"}}


def _configured(world: World, model: str) -> None:
    """The ConfigMap with the model's configuration."""
    found = bundled_config(model)
    assert found is not None
    data = {"config.json": json.dumps(found.config)}
    world.api.apply(CONFIG_MAPS, {"metadata": {"name": "house", "namespace": NAMESPACE}, "data": data}, USER)


def _with_another_plan(world: World) -> None:
    """A service that runs, and whose model's configuration has changed since."""
    _configured(world, "Qwen/Qwen3.5-9B")
    running(model=MODEL)(world)
    _configured(world, "Qwen/Qwen3-8B")
    world.until(lambda: _update(world).get("status") == "True", what="another plan is known")
    world.run(5)


def _update(world: World) -> Mapping[str, Any]:
    return world.condition(NAME, names.PLAN_UPDATE_AVAILABLE)


def _accept(world: World) -> None:
    revision = _update(world)["message"].rpartition(f"{names.ANNOTATION_ACCEPT_PLAN}: ")[2].split()[0].rstrip(".;,)")
    world.edit(
        SERVICES, NAME, {"metadata": {"annotations": {names.ANNOTATION_ACCEPT_PLAN: revision}}}, by="kubectl-annotate"
    )


def _accepted(world: World) -> Any:
    return _update(world).get("status") == "False" and replicas(1)(world)


LOW_LOAD: Final[Mapping[str, Any]] = {"concurrency": 4, "promptTokens": 1000, "outputTokens": 200}
"""Declared far too low: the cap on requests that is planned for it is what limits the service."""
CAPPED: Final[Mapping[str, Any]] = {
    "scaling": {"mode": "Fixed"},
    "replicas": 2,
    "load": LOW_LOAD,
    "hardware": {"gpu": PRODUCT, "maxGPUs": 4},
}
"""No more GPUs than for the fleet, canary and control."""


def trying_world() -> World:
    """A world in which it is noticed when the service has more GPUs than it may."""
    world = World(settings=replace(SETTINGS, experiment_window_seconds=15.0, experiments_per_day=1))

    def watch() -> None:
        pods = [pod["metadata"]["name"] for pod in world.pods() if not pod["metadata"].get("deletionTimestamp")]
        if len(pods) > 4:
            world.unexpected.found.append(f"maxGPUs is 4, and there are {', '.join(pods)}")

    world.watchers.append(watch)
    return world


def _busy_under_a_cap(world: World) -> None:
    """Two replicas with more requests than may run."""
    running(**CAPPED)(world)
    offered(40.0)(world)
    world.until(lambda: "recommendation" in world.must(SERVICES, NAME)["status"], what="a recommendation")
    world.run(5)


def _let_it_try(world: World) -> None:
    world.apply(service(NAME, **CAPPED, tuning={"mode": "Auto", "allow": ["MaxNumSeqs"]}))


def _kept(world: World) -> Any:
    past = world.must(SERVICES, NAME)["status"].get("tuning", {}).get("past") or [{}]
    if past[-1].get("outcome") != "kept":
        return False
    args = world.must(DEPLOYMENTS, NAME)["spec"]["template"]["spec"]["containers"][0]["args"]
    alone = all(world.find(DEPLOYMENTS, f"{NAME}-{track}") is None for track in ("canary", "control"))
    return alone and "--max-num-seqs=64" in args and replicas(2)(world)


SLOW: Final[Mapping[str, Any]] = {
    "load": LOW_LOAD,
    "slo": {"ttft": "300ms", "percentile": 95},
    "hardware": {"gpu": PRODUCT, "maxGPUs": 4},
}
"""Demand is for one replica, and first tokens are late: longer steps would help."""


def late_without_a_spare_gpu(world: World) -> None:
    """Four replicas on four GPUs, of which two would do; each prompt takes several steps."""
    running(**SLOW, scaling={"mode": "Auto", "minReplicas": 4})(world)
    offered(4.0)(world)
    world.until(lambda: "recommendation" in world.must(SERVICES, NAME)["status"], what="a recommendation")
    world.run(5)


def _let_it_lend(world: World) -> None:
    tuning = {"mode": "Auto", "allow": ["MaxNumBatchedTokens"]}
    world.apply(service(NAME, **SLOW, scaling={"mode": "Auto", "minReplicas": 2}, tuning=tuning))


def _given_back(world: World) -> Any:
    """The experiment was kept, canary and control are gone, and the fleet is as large as before."""
    tuning = world.must(SERVICES, NAME)["status"].get("tuning", {})
    args = world.must(DEPLOYMENTS, NAME)["spec"]["template"]["spec"]["containers"][0]["args"]
    kept = (tuning.get("past") or [{}])[-1].get("outcome") == "kept" and "--max-num-batched-tokens=4096" in args
    return kept and "lent" not in tuning and len([*world.api.store.all(DEPLOYMENTS)]) == 1 and replicas(4)(world)


def lending_world() -> World:
    """A world with four GPUs, in which it is noticed when a fleet lends what it should not."""
    chosen = replace(SETTINGS, experiment_window_seconds=15.0, experiments_per_day=1, scale_down_seconds=7200.0)
    world = World(nodes=((PRODUCT, 2), (PRODUCT, 2)), settings=chosen)

    def watch() -> None:
        pods = [pod for pod in world.pods() if not pod["metadata"].get("deletionTimestamp")]
        fleet = [pod for pod in pods if pod["metadata"]["labels"][names.LABEL_TRACK] == names.TRACK_MAIN]
        if len(pods) > 4:
            world.unexpected.found.append(f"{len(pods)} pods on 4 GPUs, {len(fleet)} of them the fleet's")
        elif len(fleet) < len(pods) and len(fleet) < 2:
            world.unexpected.found.append(f"{len(fleet)} of the fleet's pods left")

    world.watchers.append(watch)
    return world


FULL: Final[Mapping[str, Any]] = {
    "scaling": {"mode": "Fixed"},
    "replicas": 2,
    "load": {"concurrency": 64, "promptTokens": 1000, "outputTokens": 200},
    "engine": {"extraArgs": ["--max-num-seqs=512", "--gpu-memory-utilization=0.95"]},
}
"""The pool limits it, and all that is left to turn are the bits of its values."""


def full_pool(world: World) -> None:
    """Two replicas whose pools are full."""
    running(**FULL)(world)
    plan = world.must(SERVICES, NAME)["status"]["plan"]
    room = (plan["kv"]["numBlocks"] - 1) // plan["typical"]["blocks"]
    offered(5 * room / world.ward.request_seconds)(world)
    world.until(lambda: "recommendation" in world.must(SERVICES, NAME)["status"], what="a recommendation")
    world.run(5)


def _let_it_be_judged(world: World) -> None:
    world.apply(service(NAME, **FULL, tuning={"mode": "Auto", "allow": ["KVCacheDtype"], "qualityGate": {}}))


def _ended(outcome: str, dtype: str) -> Any:
    """The experiment's end, its pods, Job and Services gone, and what the fleet runs with."""

    def holds(world: World) -> Any:
        past = world.must(SERVICES, NAME)["status"].get("tuning", {}).get("past") or [{}]
        if past[-1].get("outcome") != outcome:
            return False
        args = world.must(DEPLOYMENTS, NAME)["spec"]["template"]["spec"]["containers"][0]["args"]
        alone = all(len([*world.api.store.all(kind)]) == 1 for kind in (DEPLOYMENTS, NETWORK_SERVICES))
        left = [*world.api.store.all(JOBS)]
        said = dtype in " ".join(args).replace("=", " ")
        return alone and not left and said and replicas(2)(world)

    return holds


def _let_in(world: World) -> Any:
    """Both pods of the experiment take requests, since their gate has passed."""
    running = world.must(SERVICES, NAME)["status"].get("tuning", {}).get("experiment") or {}
    waited = [pod for pod in world.pods(NAME) if "readinessGates" in pod["spec"]]
    return running.get("gate") and len(waited) == 2 and all(map(is_ready_pod, waited)) and replicas(2)(world)


def gated_world(words: str = GATE_PASSES, window_seconds: float = 15.0) -> World:
    """A world in which it is noticed when a request could meet fp8 before a gate has passed."""
    chosen = replace(SETTINGS, experiment_window_seconds=window_seconds, gate_image="own:1")
    world = World(settings=chosen)
    world.ward.gate = lambda _: (30.0, 0, words)

    takes_fp8: dict[str, bool] = {}

    def bold_pod(pod: Mapping[str, Any]) -> bool:
        uid = pod["metadata"]["uid"]
        if uid not in takes_fp8:
            takes_fp8[uid] = "fp8" in str(pod["spec"]["containers"])
        return takes_fp8[uid] and is_ready_pod(pod)

    def watch() -> None:
        bold = [pod["metadata"]["name"] for pod in world.pods() if bold_pod(pod)]
        if bold and (not world.jobs.passed or words != GATE_PASSES):
            world.unexpected.found.append(f"{bold[0]} takes requests, and no gate has passed")

    world.watchers.append(watch)
    return world


scenario(Scenario("create", nothing, apply(), ready))
scenario(
    Scenario("spec change without a roll-out", running(), apply(scaling={"mode": "Auto", "maxReplicas": 3}), ready)
)
scenario(Scenario("roll-out", running(), apply(contextTokens=16384), replicas(1)))
scenario(
    Scenario(
        "roll-out without a spare GPU",
        running(scaling={"mode": "Fixed"}, replicas=2),
        apply(scaling={"mode": "Fixed"}, replicas=2, contextTokens=16384),
        replicas(2),
        make=lambda: World(nodes=(("NVIDIA-L40S", 2),)),
    )
)
scenario(Scenario("scale up with demand", running(), offered(20.0), told(2), quiet_seconds=90.0))
scenario(
    Scenario(
        "scale down with demand", _busy, offered(0.0), told(1), within_seconds=2400.0, quiet_seconds=90.0, slow=True
    )
)
scenario(Scenario("plan change accepted", _with_another_plan, _accept, _accepted))
scenario(
    Scenario(
        "scale up by hand",
        running(scaling={"mode": "Fixed"}, replicas=1),
        lambda world: world.api.scale(SERVICES, NAMESPACE, NAME, 3, USER),
        replicas(3),
    )
)
scenario(
    Scenario(
        "scale down by hand",
        running(scaling={"mode": "Fixed"}, replicas=3),
        lambda world: world.api.scale(SERVICES, NAMESPACE, NAME, 1, USER),
        replicas(1),
    )
)
scenario(Scenario("mode hand-over", running(), apply(scaling={"mode": "External"}, replicas=2), replicas(2)))
scenario(
    Scenario(
        "drift repair",
        running(),
        _edit_image,
        lambda world: _image(world).startswith("vllm/") and replicas(1)(world),
    )
)
scenario(Scenario("deletion", running(), lambda world: world.delete(SERVICES, NAME), _gone))
scenario(Scenario("adoption refused", _foreign, apply(), _refused))
scenario(Scenario("restart", running(), _restart, _restarted))
scenario(
    Scenario(
        "experiment that is kept",
        _busy_under_a_cap,
        _let_it_try,
        _kept,
        make=trying_world,
        within_seconds=2400.0,
        quiet_seconds=90.0,
    )
)
scenario(
    Scenario(
        "experiment on lent replicas",
        late_without_a_spare_gpu,
        _let_it_lend,
        _given_back,
        make=lending_world,
        within_seconds=2400.0,
        quiet_seconds=90.0,
        told_more=6,
    )
)
scenario(
    Scenario(
        "experiment behind a quality gate",
        full_pool,
        _let_it_be_judged,
        _ended("kept", "--kv-cache-dtype fp8"),
        make=gated_world,
        within_seconds=2400.0,
        quiet_seconds=90.0,
        slow=True,
    )
)
scenario(
    Scenario(
        "quality gate that passes",
        full_pool,
        _let_it_be_judged,
        _let_in,
        make=lambda: gated_world(window_seconds=60.0),
        within_seconds=4800.0,
    )
)
scenario(
    Scenario(
        "quality gate that does not pass",
        full_pool,
        _let_it_be_judged,
        _ended("rolled back", "--kv-cache-dtype auto"),
        make=lambda: gated_world('{"score": 0.7, "threshold": 0.95}'),
        within_seconds=2400.0,
    )
)
scenario(Scenario("lease hand-over", _second_operator, _end_the_leader, replicas(1)))
