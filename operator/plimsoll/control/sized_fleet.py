"""One service's fleet at one moment, as whoever sizes it needs to know it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import names
from plimsoll.api.units import duration_seconds
from plimsoll.control.cache import Key
from plimsoll.core.activation import IDLE_SECONDS
from plimsoll.core.autoscaler import Autoscaler
from plimsoll.core.loan import NOTHING_LENT, TRIAL_PODS, Lent
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.manifests.workload import workload_of
from plimsoll.core.pods import PodState
from plimsoll.core.request import Request
from plimsoll.core.signals import FleetView


@dataclass(frozen=True)
class Fleet:
    """One service at one moment, as the reconciler has gathered it."""

    key: Key
    request: Request
    revision: Revision
    """The plan that is to run."""
    workload: Mapping[str, Any] | None
    """The live workload."""
    decisions: Sequence[Mapping[str, Any]] = ()
    """From the status."""
    pods: Sequence[PodState] = ()
    busy_with: str = ""
    other: Autoscaler | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    """``status.scaling``, as it was reported last."""
    lent: Lent = NOTHING_LENT
    """To an experiment, which takes a part of the traffic: that less comes to the fleet is no reason to shrink it."""

    @property
    def given(self) -> int | None:
        """The count that the workload was given last."""
        return None if self.workload is None else int(self.workload["spec"].get("replicas", 1))

    @property
    def live(self) -> int | None:
        """The same, with what is lent."""
        return self.given if self.given is None or self.other else self.lent.whole(self.given)

    @property
    def by_us(self) -> bool:
        """Nobody else wrote the count last: who changes it takes the field from all others."""
        return self.workload is None or names.MANAGER_SCALE in self.workload.get("managers", ())

    @property
    def auto(self) -> bool:
        """Whether the count follows demand."""
        return self.other is None and self.request.spec.scaling.mode == "Auto"

    @property
    def kind(self) -> str:
        """What runs it: a Deployment, or what stands for one where a replica spans nodes."""
        return workload_of(self.request.name, self.revision).kind

    @property
    def product(self) -> str:
        """The GPU product of its replicas."""
        return str(self.revision.plan["choice"]["gpu"])

    @property
    def whose(self) -> str:
        """Whose word the count is, where it is not ours; else empty."""
        if self.auto:
            return ""
        mode = self.request.spec.scaling.mode
        return f"{self.other} sets the count" if self.other else f"spec.scaling.mode is {mode}"

    @property
    def idle_seconds(self) -> float:
        """How long nobody has to ask before the last replica goes."""
        activation = self.request.spec.scaling.activation
        return duration_seconds(activation.idle_after) if activation and activation.idle_after else IDLE_SECONDS

    def stuck(self, view: FleetView) -> int:
        """Replicas that will not serve soon."""
        unplaced = sum(bool(pod.unplaced) for pod in self.pods)
        return view.count("failing") + -(-unplaced // self.revision.nodes)

    def share(self, view: FleetView) -> float:
        """Of the service's traffic, what comes to the fleet's own pods: all that serve get as much."""
        serving = len(view.serving)
        return serving / (serving + TRIAL_PODS) if self.lent.measuring and serving else 1.0
