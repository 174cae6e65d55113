"""What all controllers of the world share: they look again a moment after something changed, at what has changed."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.adapters.ports import ConflictError, NotFoundError
from tests.faults.world.store import Event
from tests.faults.world.virtual_time import Agenda

DELAY_SECONDS = 0.02


def ready(obj: Mapping[str, Any]) -> bool:
    """Whether a pod or a node is Ready."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@dataclass
class ControlLoop:
    """``keys`` says which objects an event concerns, ``sync`` brings one of them on."""

    agenda: Agenda
    keys: Callable[[Event], list[Hashable]]
    sync: Callable[[Hashable], float | None]
    """The seconds after which to look again by itself, if any."""
    _due: dict[Hashable, None] = field(default_factory=dict)

    def on_event(self, event: Event) -> None:
        """Something has changed."""
        for key in self.keys(event):
            self.look(key)

    def look(self, key: Hashable, after_seconds: float = DELAY_SECONDS) -> None:
        """Bring this one on, soon."""
        if after_seconds > DELAY_SECONDS:
            self.agenda.after(after_seconds, lambda: self.look(key))
        elif key not in self._due:
            self._due[key] = None
            self.agenda.after(after_seconds, lambda: self._run(key))

    def _run(self, key: Hashable) -> None:
        self._due.pop(key, None)
        try:
            again = self.sync(key)
        except (ConflictError, NotFoundError):
            again = 2 * DELAY_SECONDS  # somebody was faster: look at what is there now
        if again is not None:
            self.look(key, again)
