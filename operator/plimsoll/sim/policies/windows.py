"""Means and extremes of the last so many seconds."""

from collections import deque
from dataclasses import dataclass, field


@dataclass
class Window:
    """Values of the last ``seconds``."""

    seconds: float
    _values: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, now: float, value: float) -> None:
        """One more value; those that are too old go."""
        self._values.append((now, value))
        while self._values[0][0] <= now - self.seconds:
            self._values.popleft()

    @property
    def mean(self) -> float:
        """The mean; the window holds at least one value."""
        return sum(value for _, value in self._values) / len(self._values)

    @property
    def most(self) -> float:
        """The largest."""
        return max(value for _, value in self._values)
