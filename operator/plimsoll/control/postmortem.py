"""Why a pod's engine ended: its exit, its last words, and when they are not enough its log, read once a restart."""

import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from plimsoll.adapters.ports import Cluster, ClusterError, ForbiddenError, InvalidError, NotFoundError
from plimsoll.core.causes import HOST_MEMORY, UNEXPLAINED
from plimsoll.core.logs import SAID_LIMIT, EngineLog, Failure, read_log
from plimsoll.core.manifests.container import CONTAINER
from plimsoll.core.pods import Ended, PodState
from plimsoll.core.stable_text import stable

log = logging.getLogger("plimsoll.postmortem")

TAIL_LINES: Final = 600
LIMIT_BYTES: Final = 512 << 10
REMEMBERED: Final = 512


@dataclass(frozen=True)
class Finding:
    """Why an engine ended, and what else its log tells."""

    failure: Failure
    log: EngineLog


@dataclass
class Postmortem:
    """Reads logs of engines that ended; what was read for one restart of one pod is remembered."""

    cluster: Cluster
    _known: OrderedDict[tuple[str, int], Finding] = field(default_factory=OrderedDict)

    async def of(self, namespace: str, pods: Iterable[PodState]) -> Finding | None:
        """The finding of the pod that ended most often; None when none did."""
        ended = [(pod.ended.restarts, pod.name, pod, pod.ended) for pod in pods if pod.ended and pod.phase == "failing"]
        if not ended:
            return None
        _, _, pod, end = max(ended, key=lambda each: each[:2])
        key = (pod.uid, end.restarts)
        if key not in self._known:
            found, final = await self._examined(namespace, pod, end)
            if not final:
                return found
            self._known[key] = found
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return self._known[key]

    async def _examined(self, namespace: str, pod: PodState, end: Ended) -> tuple[Finding, bool]:
        """The finding, and whether looking again would find the same."""
        said = read_log(end.last_words)
        if end.reason == "OOMKilled":
            return Finding(Failure(HOST_MEMORY, ""), said), True
        known = said.failure
        if known and known.cause is not UNEXPLAINED and known.cause.remedy != "replan":
            return Finding(known, said), True
        text, final = await self._log(namespace, pod, end)
        whole = read_log(text) if text else said
        return Finding(whole.failure or known or Failure(UNEXPLAINED, _last_line(end.last_words)), whole), final

    async def _log(self, namespace: str, pod: PodState, end: Ended) -> tuple[str, bool]:
        try:
            text = await self.cluster.log(
                namespace, pod.name, CONTAINER, previous=end.previous, tail_lines=TAIL_LINES, limit_bytes=LIMIT_BYTES
            )
        except (ForbiddenError, NotFoundError, InvalidError) as error:
            log.warning("log of pod %s/%s cannot be read: %s", namespace, pod.name, error.message)
            return "", True
        except ClusterError as error:
            log.warning("log of pod %s/%s: %s", namespace, pod.name, error.message)
            return "", False
        return text, True


def _last_line(words: str) -> str:
    lines = [line for line in words.splitlines() if line.strip()]
    return stable(lines[-1], SAID_LIMIT) if lines else ""
