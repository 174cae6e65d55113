"""What to turn next, for each service that is limited by something a flag could mend. Nothing is changed here."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from plimsoll.control.beginnings import by_itself
from plimsoll.control.cache import Key
from plimsoll.control.planning import Planner
from plimsoll.core import retune
from plimsoll.core.diagnose import Finding
from plimsoll.core.drift import digest
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.observed import Observed
from plimsoll.core.proposed import Weighed, weighed
from plimsoll.core.request import Request
from plimsoll.core.retune import NOTHING_SEEN, Recommendation, Seen
from plimsoll.core.tuned import as_planned, without_flags


def shown(observed: Observed) -> Seen:
    """What running pods have shown of their pool, and over days of prefixes."""
    days = (observed.load or {}).get("days") or ()
    hits = [day["prefixHitPercent"] for day in days if "prefixHitPercent" in day]
    return Seen(observed.pool.num_blocks if observed.pool else None, max(hits, default=None))


@dataclass
class Advisor:
    """Recommendations, planned anew only when what they rest on is another."""

    planner: Planner
    _known: dict[Key, tuple[str, Recommendation | None, Weighed]] = field(default_factory=dict)

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._known.pop(key, None)

    async def advise(
        self,
        key: Key,
        request: Request,
        revision: Revision | None,
        finding: Finding | None,
        before: Mapping[str, Any],
        failed: Collection[tuple[str, str]] = (),
        seen: Seen = NOTHING_SEEN,
    ) -> Mapping[str, Any] | None:
        """``status.recommendation``; ``before`` is what stands there. None: nothing to turn, or it is turned off.

        ``failed``: flags and values that were tried in vain, ``seen``: what running pods have shown. While it is not
        known what limits the service, what was said stays.
        """
        if request.spec.tuning.mode == "Off" or revision is None:
            return None
        if finding is None:
            return before or None
        found = await self._recommended(key, request, revision, finding, failed, seen)
        return found.status() if found else None

    def grounds(self, key: Key) -> Weighed | None:
        """What the last recommendation was made from; None while nothing is known that a flag could mend."""
        return self._known[key][2] if key in self._known else None

    async def _recommended(
        self,
        key: Key,
        request: Request,
        revision: Revision,
        finding: Finding,
        failed: Collection[tuple[str, str]],
        seen: Seen,
    ) -> Recommendation | None:
        if finding.word not in retune.RULES:
            self.forget(key)
            return None
        first = by_itself(request)
        basis = digest([request.fingerprint, revision.name, finding.word, sorted(failed), sorted(first), asdict(seen)])
        if (known := self._known.get(key)) is None or known[0] != basis:
            # Against the plan that runs: what else planning again would change is not this flag's doing.
            asked = await self.planner.what_if(as_planned(without_flags(request), revision))
            if asked is None:
                return None
            plan, words = revision.plan, (finding.word, finding.message)
            found = retune.recommend(*words, plan, asked.spec, asked.of, request.tuned, failed, first=first, seen=seen)
            known = self._known[key] = (basis, found, weighed(asked, plan, *words, request.tuned, failed, first, seen))
        return known[1]
