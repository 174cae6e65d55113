"""A machine that mixes what users do, what goes wrong, and time; hypothesis drives it, and shrinks what it finds.

Safety holds at every moment; after everything has calmed down the service is as a fresh object of its last spec.
"""

from typing import Any, Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plimsoll.adapters.ports import DEPLOYMENTS, NETWORK_SERVICES, PODS, SERVICES, UnreachableError
from tests.faults.rig.api_faults import ERRORS, Failing
from tests.faults.rig.endstate import differences
from tests.faults.rig.run import CALM, Keeper
from tests.faults.rig.views import Garbled
from tests.faults.rig.walks import NAME, NODES, VALUES, Spec, first, fresh, reached
from tests.faults.world.connection import Calm
from tests.faults.world.process import Process
from tests.faults.world.store import Object
from tests.faults.world.world import NAMESPACE, USER, World, service

MACHINE: Final = settings(
    max_examples=4,
    stateful_step_count=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # the steps that failed are printed; shrinking takes minutes
    suppress_health_check=[*HealthCheck],
)
FAULT_SECONDS: Final = 30.0
QUIET_SECONDS: Final = 900.0
FREE: Final = [field for field in VALUES if field != "hardware"]
FOREIGN: Final = "somebody-elses"


class Machine(RuleBasedStateMachine):
    """One service in one world."""

    def __init__(self) -> None:
        super().__init__()
        self.spec: Spec = first()
        self.world = World(nodes=NODES, prometheus_configured=False)
        self.leaders: set[str] = set()

    @initialize()
    def begin(self) -> None:
        """Two operators, a service, and an object of somebody else's beside it."""
        self.world.keepers.append(Keeper(self.world, CALM))
        self.world.watchers.append(self.safe)
        meta = {"name": FOREIGN, "namespace": NAMESPACE}
        ports = [{"port": 80}]
        self.foreign = self.world.api.create(
            NETWORK_SERVICES, {"metadata": meta, "spec": {"selector": {"a": "b"}, "ports": ports}}, USER
        )
        for _ in range(2):
            self.world.start_operator()
        self._apply()
        self.world.run(60)

    def _apply(self) -> None:
        self.world.apply(service(NAME, **self.spec))

    # What users do.

    @rule(field=st.sampled_from(FREE), index=st.integers(0, 2))
    def edit(self, field: str, index: int) -> None:
        """One field becomes another of its values."""
        values = VALUES[field]
        self.spec = {**self.spec, field: values[index % len(values)]}
        self._apply()

    @rule()
    def recreate(self) -> None:
        """Delete it, and make it anew at once."""
        self.world.delete(SERVICES, NAME)
        self._apply()

    @rule(kind=st.sampled_from((DEPLOYMENTS, NETWORK_SERVICES)))
    def delete_a_child(self, kind: Any) -> None:
        """By hand."""
        if self.world.find(kind, NAME):
            self.world.delete(kind, NAME)

    @precondition(lambda self: self.world.find(DEPLOYMENTS, NAME) is not None)
    @rule(count=st.integers(0, 6))
    def edit_the_count(self, count: int) -> None:
        """Of the child."""
        self.world.edit(DEPLOYMENTS, NAME, {"spec": {"replicas": count}})

    # What goes wrong.

    @rule(seconds=st.sampled_from((0.1, 3.0, 30.0, 200.0)))
    def time_passes(self, seconds: float) -> None:
        """Quietly, or with whatever is going on."""
        self.world.run(seconds)

    @precondition(lambda self: self._leader() is not None)
    @rule()
    def kill_the_leader(self) -> None:
        """SIGKILL."""
        leader = self._leader()
        assert leader is not None
        leader.kill()

    @precondition(lambda self: self._leader() is not None)
    @rule(name=st.sampled_from(sorted(ERRORS)), share=st.sampled_from((0.3, 1.0)))
    def the_api_fails(self, name: str, share: float) -> None:
        """For half a minute."""
        until = self.world.agenda.now + FAULT_SECONDS
        for process in self.world.alive:
            process.connection.interference = Failing(ERRORS[name], share, until, self.world.api.random)

    @rule(dropped=st.sampled_from((0.0, 1.0)), late=st.sampled_from((0.0, 1.0)))
    def watches_are_garbled(self, dropped: float, late: float) -> None:
        """For half a minute."""
        until = self.world.agenda.now + FAULT_SECONDS
        for process in self.world.alive:
            found = Garbled(self.world, until, self.world.api.random, dropped, doubled=0.5, late=late)
            process.connection.interference = found

    @rule(compacted=st.booleans())
    def watches_break(self, compacted: bool) -> None:
        """With 410, or without."""
        if compacted:
            self.world.api.store.compact()
        for process in self.world.alive:
            process.connection.cut_watches(UnreachableError("WATCH: the connection broke"))

    @rule(index=st.integers(0, len(NODES) - 1))
    def a_node_goes_and_comes_back(self, index: int) -> None:
        """Within a minute."""
        self.world.lose_node(f"node-{index}")
        self.world.run(50)
        self.world.return_node(f"node-{index}")

    def _leader(self) -> Process | None:
        return next((process for process in self.world.alive if process.leads), None)

    # What must hold.

    def safe(self) -> None:
        """At every moment."""
        assert not self.world.unexpected.found, self.world.unexpected.found[0]
        leading = [process for process in self.world.alive if process.leads and not process.stopped]
        assert len(leading) <= 1, "two operators lead"
        pods = self.world.api.store.all(PODS, NAMESPACE)
        present = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        assert len(present) <= self._most(), f"{len(present)} pods, maxGPUs allows {self._most()}"

    def _most(self) -> int:
        """GPUs that the spec allows; a count that somebody wrote into the child stands until it is seen."""
        allowed = int(self.spec.get("hardware", {}).get("maxGPUs", 8))
        child: Object = self.world.find(DEPLOYMENTS, NAME) or {"spec": {"replicas": 0}}
        return max(allowed, int(child["spec"]["replicas"]) + 1)

    @invariant()
    def foreign_objects_are_untouched(self) -> None:
        """What is not ours."""
        if hasattr(self, "foreign"):
            assert self.world.find(NETWORK_SERVICES, FOREIGN) == self.foreign

    def teardown(self) -> None:
        """Quiet, and then the end."""
        try:
            if hasattr(self, "foreign"):
                self._settle()
        finally:
            self.world.close()

    def _settle(self) -> None:
        for process in self.world.alive:
            process.connection.interference = Calm()
        self.world.run(QUIET_SECONDS)
        found = reached(self.world)
        found.pop(f"Service {NAMESPACE}/{FOREIGN}")
        wrong = differences(fresh(self.spec), found)
        assert not wrong, "\n".join([*wrong, self.world.describe()])
