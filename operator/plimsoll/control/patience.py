"""How soon to look again at pods that wait for something: after as long again as they have waited so.

What a pod itself shows comes with its events; a look finds what only others tell of it, such as a volume not mounted.
"""

from dataclasses import dataclass, field
from typing import Final

from plimsoll.control.cache import Key
from plimsoll.core.pods import PodState

LEAST_SECONDS: Final = 15.0
MOST_SECONDS: Final = 600.0
"""As often as a sweep looks at everything."""


@dataclass
class Patience:
    """Since when the pods of each service have been as they are. What a pod shows itself is looked at without it."""

    _since: dict[Key, tuple[int, float]] = field(default_factory=dict)

    def seconds(self, key: Key, pods: tuple[PodState, ...], now: float) -> float | None:
        """The seconds after which to look again; None when no pod waits."""
        if all(pod.phase != "pending" for pod in pods):
            self._since.pop(key, None)
            return None
        shown, (before, since) = hash(pods), self._since.get(key, (0, now))
        since = since if shown == before and since <= now else now
        self._since[key] = shown, since
        return min(MOST_SECONDS, max(LEAST_SECONDS, now - since))

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._since.pop(key, None)
