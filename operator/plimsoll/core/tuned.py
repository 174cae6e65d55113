"""Flags that experiments found to be better than the planner's: where they are kept, and for whom they count. Pure.

They are kept in the ControllerRevision of the plan that was made with them, beside what the plan is: whoever loses a
status loses no setting. To the planner they are arguments like the user's own, whose flags always win.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from plimsoll.core.drift import digest
from plimsoll.core.manifests.revision import Revision, current
from plimsoll.core.plan.demand import LearnedLoad
from plimsoll.core.request import Request

Flags = Mapping[str, str]
"""Value by flag, as ``vllm serve`` spells it: ``{"--max-num-seqs": "64"}``. A switch is ON or OFF."""
ON, OFF = "on", "off"


def argument(flag: str, value: str) -> str:
    """A flag with its value as one argument; of a switch one of its two names alone."""
    if value in (ON, OFF):
        return flag if value == ON else f"--no-{flag.removeprefix('--')}"
    return f"{flag}={value}"


def kept_flags(request: Request, kept: Iterable[Revision]) -> dict[str, str]:
    """The settings that count for this request, of the revision that runs."""
    running = current(kept)
    return flags_of(request, running) if running else {}


def flags_of(request: Request, revision: Revision) -> dict[str, str]:
    """The settings that a revision was made with, as far as they still are about what the request asks for."""
    found = revision.tuned
    if not found or found.get("subject") != _subject(request):
        return {}
    return {str(flag): str(value) for flag, value in (found.get("flags") or {}).items() if not pinned(request, flag)}


def kept_as(request: Request) -> dict[str, Any]:
    """What a revision keeps of the settings that its request was given; nothing when there are none."""
    return {"subject": _subject(request), "flags": dict(request.tuned)} if request.tuned else {}


def with_flags(request: Request, flags: Flags) -> Request:
    """The request as if the user had written these flags too; the same request when there are none."""
    if not flags:
        return request
    args = (*request.own_engine.extra_args, *(argument(*each) for each in sorted(flags.items())))
    engine = request.spec.engine.model_copy(update={"extra_args": args})
    spec = request.spec.model_copy(update={"engine": engine})
    return replace(request, spec=spec, fingerprint=digest([request.fingerprint, dict(flags)]), tuned=dict(flags))


def without_flags(request: Request) -> Request:
    """The request as the user wrote it."""
    if not request.tuned:
        return request
    spec = request.spec.model_copy(update={"engine": request.own_engine})
    fingerprint = digest([request.planned, request.restart])
    return replace(request, spec=spec, fingerprint=fingerprint, tuned={})


def with_lessons(request: Request, kept: Iterable[Revision]) -> Request:
    """The request with the load and step times that its plan counts with: what was learned meanwhile, unless all that
    is new is a flag that an experiment has found. That changes one thing, and brings nothing else to pods that nobody
    asked to restart.
    """
    running = current(kept)
    if running is None or running.fingerprint == request.fingerprint:
        return request
    before = with_flags(without_flags(request), (running.tuned or {}).get("flags") or {})
    return as_planned(request, running) if before.fingerprint == running.fingerprint else request


def as_planned(request: Request, revision: Revision) -> Request:
    """The request with the load and the step times that a kept plan was made with."""
    key, factor = revision.plan.get("stepKey"), revision.plan.get("stepFactor")
    speeds = {str(key): float(factor)} if key and factor else {}
    return replace(request, load=LearnedLoad.from_dict(revision.load), speeds=speeds)


def pinned(request: Request, flag: str) -> bool:
    """Whether the user has written this flag: then it is nobody else's."""
    own = request.own_engine.extra_args
    written = {arg.partition("=")[0].replace("_", "-") for arg in own if arg.startswith("--")}
    return not written.isdisjoint((flag, argument(flag, OFF)))


def _subject(request: Request) -> str:
    """What a setting was found to be better for: another model, GPU, engine or context asks anew."""
    spec = request.spec
    hardware = (spec.hardware.gpu, spec.hardware.gpus)
    return digest([spec.model.model_dump(), hardware, request.own_engine.model_dump(), spec.context_tokens])
