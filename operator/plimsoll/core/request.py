"""What a service asks for, as the planner and the rollout see it. Pure: a live object in, values out."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError

from plimsoll.api import names
from plimsoll.api.parse import InvalidServiceError, field_errors
from plimsoll.api.v1alpha1 import EngineSpec, VLLMServiceSpec
from plimsoll.core.drift import digest
from plimsoll.core.plan.demand import NOTHING_LEARNED, LearnedLoad

FREE_OF_PLAN: Final = ("scaling", "replicas", "tuning", "mode", "rollout", "className", "routing")
"""Spec fields that change how many pods run, what stands beside them or what the operator may do, never what a pod
looks like.
"""


@dataclass(frozen=True)
class Request:
    """One VLLMService as asked for."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: VLLMServiceSpec
    fingerprint: str
    """Identifies the part of the request that a plan and a pod template answer."""
    restart: str
    accept_plan: str
    hold: str
    """The hold annotation, in lower case: ``true`` or not; what is neither holds, to be on the safe side."""
    planned: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The part of the spec that the fingerprint is of, as written."""
    tuned: Mapping[str, str] = field(default_factory=dict)
    """Flags among ``spec.engine.extra_args`` that an experiment has found and nobody wrote (``core/tuned.py``)."""

    wish: str = ""
    """What a person says of an experiment: the annotation as it stands."""
    load: LearnedLoad = NOTHING_LEARNED
    """What the service's traffic has shown; no part of the fingerprint, so nothing is planned anew for it alone."""
    step_factor: float | None = None
    """Step times of its own pods over those predicted; None: not known."""
    speeds: Mapping[str, float] | None = None
    """Step times by what decides them, in place of those that pods teach now (``core/speed.py``)."""

    @property
    def own_engine(self) -> EngineSpec:
        """``spec.engine`` as the user wrote it."""
        engine = self.spec.engine
        own = engine.extra_args[: len(engine.extra_args) - len(self.tuned)]
        return engine.model_copy(update={"extra_args": own})

    @property
    def held_because(self) -> str:
        """Why nothing may be written to the fleet, or empty."""
        if self.hold == "true":
            return f"annotation {names.ANNOTATION_HOLD} is set: observing only"
        if self.hold not in ("", "false"):
            return (
                f"annotation {names.ANNOTATION_HOLD}: {self.hold[:40]!r} is neither true nor false: observing only, to "
                "be on the safe side; correct it or remove it"
            )
        return "spec.mode is Shadow: deciding and recording only" if self.spec.mode == "Shadow" else ""

    def lasting(self, restarted: str) -> "Request":
        """The request beside a fleet whose pods were last restarted for this value of the annotation.

        Only a new value asks for a restart: to take the annotation away (a ``kubectl apply`` from Git does) asks for
        nothing, so the last value stays in force.
        """
        if self.restart or not restarted:
            return self
        return replace(self, restart=restarted, fingerprint=_fingerprint(self.planned, restarted))

    @property
    def minimum_replicas(self) -> int:
        """Replicas that the plan must at least have room for."""
        return minimum_replicas(self.spec)

    def wanted_replicas(self, gpus_per_replica: int, planned: int = 1) -> int:
        """Replicas to begin with: in Auto what the load was planned to need, else what the user or an HPA asks.

        Never fewer than the floor, never more than ``maxGPUs`` allows.
        """
        scaling = self.spec.scaling
        asked = max(scaling.min_replicas, planned) if scaling.mode == "Auto" else self.spec.replicas
        return min(asked, self.most_replicas(gpus_per_replica))

    def most_replicas(self, gpus_per_replica: int) -> int:
        """Replicas that ``maxGPUs`` (and in Auto ``maxReplicas``) allows."""
        by_gpus = self.spec.hardware.max_gpus // gpus_per_replica
        limit = self.spec.scaling.max_replicas if self.spec.scaling.mode == "Auto" else None
        return by_gpus if limit is None else min(by_gpus, limit)


def minimum_replicas(spec: VLLMServiceSpec) -> int:
    """Replicas that a plan must at least have room for: the floor in Auto; one where somebody else sets the count."""
    return max(1, spec.scaling.min_replicas) if spec.scaling.mode == "Auto" else 1


def read_request(obj: Mapping[str, Any]) -> Request:
    """The request in a VLLMService object.

    Raises:
        InvalidServiceError: a spec that is none of ours, which a CRD of another release let pass.
    """
    meta = obj["metadata"]
    annotations = meta.get("annotations") or {}
    raw = obj.get("spec") or {}
    restart = annotations.get(names.ANNOTATION_RESTART, "")
    planned = {k: v for k, v in raw.items() if k not in FREE_OF_PLAN}
    return Request(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=int(meta.get("generation", 0)),
        spec=_spec(raw),
        fingerprint=_fingerprint(planned, restart),
        restart=restart,
        accept_plan=annotations.get(names.ANNOTATION_ACCEPT_PLAN, ""),
        hold=annotations.get(names.ANNOTATION_HOLD, "").strip().lower(),
        planned=planned,
        wish=annotations.get(names.ANNOTATION_EXPERIMENT, "").strip(),
    )


def _spec(raw: Mapping[str, Any]) -> VLLMServiceSpec:
    try:
        return VLLMServiceSpec.model_validate(raw)
    except ValidationError as error:
        found = field_errors(error, raw, VLLMServiceSpec)
        raise InvalidServiceError([replace(each, path=f"spec.{each.path}".rstrip(".")) for each in found]) from None


def _fingerprint(planned: Mapping[str, Any], restart: str) -> str:
    return digest([planned, restart])
