"""Scenarios of what befalls a fleet: nodes, images, GPUs, engines that die, and people's hands on what we own."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from plimsoll.adapters.ports import DEPLOYMENTS, DISRUPTION_BUDGETS, NETWORK_SERVICES, REVISIONS, SERVICES, Kind
from plimsoll.api import names
from tests.faults.rig.endstate import differences, state
from tests.faults.rig.lifecycle import NAME, apply, nothing, replicas, running
from tests.faults.rig.scenario import Scenario, Step, scenario
from tests.faults.world.control_loop import ready as pod_ready
from tests.faults.world.kinds import NAMESPACES
from tests.faults.world.kubelet import Crash
from tests.faults.world.store import Object
from tests.faults.world.world import NAMESPACE, PRODUCT, USER, World

PASSES_SECONDS: Final = 200.0
"""How long a hardship lasts that ends by itself."""
OUT_OF_MEMORY: Final = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 0 has a total capacity of 44.39 GiB "
    "of which 234.00 MiB is free."
)


def _lose_its_node(world: World) -> None:
    node = world.pods(NAME)[0]["spec"]["nodeName"]
    world.lose_node(node)


def _elsewhere(world: World) -> Any:
    here = [pod for pod in world.pods(NAME) if pod_ready(pod)]
    return replicas(1)(world) and bool(here) and all(map(world.kubelet.is_here, here))


def _arguments(pod: Object) -> list[str]:
    return [str(arg) for arg in pod["spec"]["containers"][0]["args"]]


def _of_the_new_plan(pod: Object) -> bool:
    return "16384" in _arguments(pod)


def _image_missing_for_a_while(world: World) -> None:
    world.ward.missing_image = _of_the_new_plan
    world.agenda.after(PASSES_SECONDS, lambda: setattr(world.ward, "missing_image", lambda _: False))
    apply(contextTokens=16384)(world)


def _one_gpu_more_later(world: World) -> None:
    world.agenda.after(PASSES_SECONDS, lambda: world.add_node("node-late", PRODUCT, 1))
    apply(scaling={"mode": "Fixed"}, replicas=2)(world)


def _runs_out_of_memory(fitting_step_tokens: int) -> Callable[[World], None]:
    """Engines die while they load, until their steps are small enough."""

    def act(world: World) -> None:
        def crash(pod: Object) -> Crash | None:
            arguments = _arguments(pod)
            step_tokens = int(arguments[arguments.index("--max-num-batched-tokens") + 1])
            return Crash(1, "Error", OUT_OF_MEMORY) if step_tokens > fitting_step_tokens else None

        world.ward.crash = crash
        apply()(world)

    return act


def _given_up(world: World) -> bool:
    """It is said that nobody but a human can help, and the plans that were tried are few."""
    return (
        world.condition(NAME, names.STALLED).get("status") == "True"
        and len([*world.api.store.all(REVISIONS, NAMESPACE)]) <= 2
    )


def _flaps_for_a_while(world: World) -> None:
    world.ward.flapping = lambda _: world.agenda.now < ends
    ends = world.agenda.now + PASSES_SECONDS
    for pod in world.pods(NAME):
        world.kubelet.flap(pod)


def _steady(world: World) -> Any:
    return replicas(1)(world) and not world.ward.flapping({})


def _namespace_gone(world: World) -> bool:
    return world.find(NAMESPACES, NAMESPACE, "") is None


def as_before(what: Callable[[World], object], spec: Mapping[str, Any] | None = None) -> tuple[Step, Step, Step]:
    """Prepare, act and done of a scenario that must end as it began."""
    chosen = dict(spec or {"scaling": {"mode": "Fixed"}, "replicas": 2})
    before: dict[int, Any] = {}

    def prepare(world: World) -> None:
        running(**chosen)(world)
        before[id(world)] = state(world)

    def done(world: World) -> bool:
        return not differences(before[id(world)], state(world))

    return prepare, what, done


def change(kind: Kind, patch: Mapping[str, Any]) -> Step:
    """Somebody edits a child."""
    return lambda world: world.edit(kind, _child(world, kind), patch)


def _child(world: World, kind: Kind) -> str:
    return next(str(obj["metadata"]["name"]) for obj in world.api.store.all(kind, NAMESPACE))


def removal(kind: Kind) -> Step:
    """Somebody deletes a child."""
    return lambda world: world.delete(kind, _child(world, kind))


_UNLABELLED: Final = {"metadata": {"labels": {names.LABEL_SERVICE: None, names.LABEL_MANAGED_BY: None}}}
_ORPHANED: Final = {"metadata": {"ownerReferences": None}}
_CHILDREN: Final = (DEPLOYMENTS, NETWORK_SERVICES, DISRUPTION_BUDGETS, REVISIONS)
_EDITS: Final[Mapping[Kind, Mapping[str, Any]]] = {
    DEPLOYMENTS: {"spec": {"replicas": 5}},
    NETWORK_SERVICES: {"spec": {"selector": {"app": "other"}}},
    DISRUPTION_BUDGETS: {"spec": {"maxUnavailable": 2}},
    # What a ControllerRevision holds cannot be edited; its number says which one is current, whatever it is.
}

scenario(Scenario("node lost", running(), _lose_its_node, _elsewhere, hardship=True))
scenario(Scenario("image missing", running(), _image_missing_for_a_while, replicas(1), hardship=True))
scenario(
    Scenario(
        "no GPU left",
        running(scaling={"mode": "Fixed"}, replicas=1),
        _one_gpu_more_later,
        replicas(2),
        make=lambda: World(nodes=((PRODUCT, 1),)),
        hardship=True,
    )
)
scenario(Scenario("out of memory once", nothing, _runs_out_of_memory(1024), replicas(1), hardship=True))
scenario(Scenario("out of memory for ever", nothing, _runs_out_of_memory(0), _given_up, 2400.0, hardship=True))
scenario(Scenario("probes flap", running(), _flaps_for_a_while, _steady, hardship=True))
scenario(
    Scenario("namespace deleted", running(), lambda world: world.delete(NAMESPACES, NAMESPACE, ""), _namespace_gone)
)
for _kind, _edit in _EDITS.items():
    scenario(Scenario(f"{_kind.kind} edited", *as_before(change(_kind, _edit)), hardship=True))
for _kind in _CHILDREN:
    scenario(Scenario(f"{_kind.kind} deleted", *as_before(removal(_kind)), hardship=True))
    scenario(Scenario(f"{_kind.kind} relabelled", *as_before(change(_kind, _UNLABELLED)), hardship=True))
    scenario(Scenario(f"{_kind.kind} orphaned", *as_before(change(_kind, _ORPHANED)), hardship=True))


def _foreign(kind: Kind, manifest: Mapping[str, Any]) -> Step:
    meta = {"metadata": {"name": NAME, "namespace": NAMESPACE}}
    return lambda world: world.api.create(kind, {**manifest, **meta}, USER)


def _in_the_way(kind: Kind) -> Step:
    def done(world: World) -> bool:
        untouched = names.MANAGER_CHILDREN not in str(world.must(kind, NAME)["metadata"].get("managedFields"))
        said = str(world.must(SERVICES, NAME).get("status", {}).get("conditions"))
        return untouched and "NameConflict" in said and f"{kind.kind} {NAMESPACE}/{NAME} exists" in said

    return done


_FOREIGN: Final[Mapping[Kind, Mapping[str, Any]]] = {
    NETWORK_SERVICES: {"spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}},
    DISRUPTION_BUDGETS: {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}}},
}
for _kind, _manifest in _FOREIGN.items():
    scenario(
        Scenario(
            f"a foreign {_kind.kind}",
            _foreign(_kind, _manifest),
            apply(scaling={"mode": "Fixed"}, replicas=2),
            _in_the_way(_kind),
            hardship=True,
        )
    )
