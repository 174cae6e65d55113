"""What is said of a service stays said until the evidence of several ticks says otherwise. Pure.

One noisy sample must neither flip a condition, nor post an event, nor write a status; and a figure in a sentence is
worth a write only when it has moved by a tenth (decision 11).
"""

from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

MEMORY: Final = 8
RECENT: Final = 4
STEP: Final = 0.1


class Statement(Protocol):
    """Something that is said of a service."""

    @property
    def word(self) -> str:
        """The statement in one word: another word is another statement."""

    @property
    def figures(self) -> tuple[float, ...]:
        """The figures of its sentence: shares, or ratios to a target."""

    @property
    def patience(self) -> int:
        """Ticks in a row that it must be true before it is said."""


S = TypeVar("S", bound=Statement)


@dataclass(frozen=True)
class Steady(Generic[S]):
    """``said``: what is said now; None while nothing has held for long enough. ``recent``: the last ticks' words."""

    said: S | None = None
    recent: tuple[str, ...] = ()

    def after(self, now: S) -> "Steady[S]":
        """With one tick more, whose evidence says ``now``."""
        recent = (*self.recent, now.word)[-MEMORY:]
        if self.said is not None and self.said.word == now.word:
            return Steady(self.said if close(self.said.figures, now.figures) else now, recent)
        return Steady(now if self._gives_way(now, recent) else self.said, recent)

    def _gives_way(self, now: S, recent: tuple[str, ...]) -> bool:
        """The new word has held, or the old one has not been true for a while however the new ones change."""
        if all(word == now.word for word in recent[-now.patience :]) and len(recent) >= now.patience:
            return True
        outdated = self.said is not None and self.said.word not in recent[-RECENT:]
        return outdated and len(recent) >= RECENT and now.patience <= RECENT


def close(before: tuple[float, ...], now: tuple[float, ...]) -> bool:
    """Whether no figure has moved by ten points, or by a tenth where it is above one."""
    if len(before) != len(now):
        return False
    return all(abs(a - b) < STEP * max(1.0, abs(a), abs(b)) for a, b in zip(before, now, strict=True))


@dataclass(frozen=True)
class Verdict:
    """A condition as the evidence of one tick has it."""

    word: str
    """The reason."""
    status: str
    message: str
    figures: tuple[float, ...] = ()
    patience: int = 1
