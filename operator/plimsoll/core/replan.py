"""One bounded second try: a plan that an engine refused is made again with the engine's figures, once a request. Pure.

That it was tried is kept in the revision, so a restart of the operator does not try again.
"""

from collections.abc import Iterable
from typing import Any, Final

from plimsoll.core.drift import digest
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.plan.correction import NOTHING_LEARNED, Correction, from_dict, to_dict
from plimsoll.core.request import Request

TRIED: Final = "Planning again with the engine's figures was tried once and did not help: change the request."


def subject(request: Request) -> str:
    """What a correction is about: the same model in the same engine on the same GPUs."""
    spec = request.spec
    return digest([spec.model.model_dump(), spec.hardware.gpu, spec.hardware.gpus, request.own_engine.model_dump()])


def learned(request: Request, correction: Correction, *, replanned: bool) -> dict[str, Any]:
    """What a revision keeps of a correction; nothing when there is none."""
    if correction.empty:
        return {}
    return {"subject": subject(request), "correction": to_dict(correction), "replanned": replanned}


def known(request: Request, kept: Iterable[Revision]) -> Correction:
    """The correction that plans of this request start from: the newest kept one about the same subject."""
    about = subject(request)
    newest_first = sorted(kept, key=lambda r: r.number, reverse=True)
    found = next((r.learned for r in newest_first if r.learned.get("subject") == about), None)
    return from_dict(found.get("correction") or {}) if found else NOTHING_LEARNED


def was_tried(request: Request, kept: Iterable[Revision]) -> bool:
    """Whether this very request has had its second try."""
    return any(r.fingerprint == request.fingerprint and r.learned.get("replanned") for r in kept)
