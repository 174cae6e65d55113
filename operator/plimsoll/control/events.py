"""Kubernetes Events, on transitions only. An event that cannot be written is logged and forgotten."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from plimsoll.adapters.ports import EVENTS, Clock, Cluster, ClusterError
from plimsoll.api import names
from plimsoll.api.findings import FINDINGS
from plimsoll.core.conditions import Condition
from plimsoll.core.diagnose import Finding
from plimsoll.core.drift import digest
from plimsoll.core.ledger import Entry

log = logging.getLogger("plimsoll.events")

TOLD: Final = (names.PLANNED, names.READY, names.STALLED, names.METRICS_AVAILABLE, names.SLO_MET)
"""Conditions whose flips people want to see in ``kubectl describe``."""
_GOOD: Final[Mapping[str, str]] = {names.PLANNED: "True", names.READY: "True"}
_OBSERVED: Final = (names.METRICS_AVAILABLE, names.SLO_MET)
MESSAGE_LIMIT: Final = 1000


class EventWriter:
    """Tells people when a condition flips. ``all_entries``: of the ledger, also those that change nothing."""

    def __init__(self, cluster: Cluster, clock: Clock, *, all_entries: bool = False) -> None:
        self._cluster = cluster
        self._clock = clock
        self._all_entries = all_entries

    async def transitions(
        self, service: Mapping[str, Any], before: Iterable[Mapping[str, Any]], now: Iterable[Condition]
    ) -> None:
        """One event for each told condition that flipped to something worth telling."""
        old = {c.get("type"): c.get("status") for c in before}
        for condition in now:
            if condition.type in TOLD and worth_telling(old.get(condition.type), condition):
                await self._post(service, condition)

    async def decisions(self, service: Mapping[str, Any], made: Iterable[Entry], noted: Iterable[Entry]) -> None:
        """One event for each decision that has changed something; of what is ``noted`` beside them if it is asked."""
        told = (*noted, *made) if self._all_entries else (entry for entry in made if entry.changes)
        for entry in told:
            await self._post(service, Condition(entry.kind, "True", entry.reason, entry.sentence))

    async def finding(self, service: Mapping[str, Any], before: str | None, finding: Finding | None) -> None:
        """One event when something else limits the service than before; that nothing does is news only after it."""
        if finding is None or finding.word == before or not (finding.kind.bad or _was_bad(before)):
            return
        status = "False" if finding.kind.bad else "True"
        await self._post(service, Condition("Finding", status, finding.word, finding.message))

    async def _post(self, service: Mapping[str, Any], condition: Condition) -> None:
        try:
            await self._cluster.create(EVENTS, event(service, condition, self._clock.now()))
        except ClusterError as error:
            log.warning("event %s not written: %s", condition.reason, error.message)


def _was_bad(finding: str | None) -> bool:
    return finding in FINDINGS and FINDINGS[finding].bad


def worth_telling(before: str | None, condition: Condition) -> bool:
    """A flip; the first ``False`` of a condition that starts as such is no news."""
    if before == condition.status:
        return False
    good = _GOOD.get(condition.type)
    if condition.type == names.STALLED:
        return condition.status == "True"
    if condition.type in _OBSERVED:
        # That nothing is known is the normal state of a fleet that starts, or that nobody asks anything.
        return "False" in (condition.status, before)
    return good in (condition.status, before)


def event(service: Mapping[str, Any], condition: Condition, now: str) -> dict[str, Any]:
    """A core/v1 Event about the service."""
    meta = service["metadata"]
    bad = condition.type == names.STALLED or condition.status == "False"
    suffix = digest([meta["uid"], condition.type, condition.status, condition.message, now])
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{suffix}", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        },
        "type": "Warning" if bad else "Normal",
        "reason": condition.reason,
        "message": condition.message[:MESSAGE_LIMIT],
        "source": {"component": names.MANAGED_BY},
        "reportingComponent": f"{names.GROUP}/operator",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
