"""What a proposal of another flag was made from, and who let it be tried: for the log, and made once more. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.core.experiment import Timing, over_budget
from plimsoll.core.planned import Asked, Recorded, recorded, without_credentials
from plimsoll.core.retune import NOTHING_SEEN, Recommendation, Seen, recommend

_READ: Final = ("kv", "typical", "latency", "plannedReplicas")
"""Parts of the plan that runs, beside choice and memory, which a proposal rests on."""


@dataclass(frozen=True)
class Weighed:
    """Arguments of ``retune.recommend``; of the plan that runs what it reads."""

    asked: Recorded
    plan: Mapping[str, Any]
    finding: str
    why: str
    kept: Mapping[str, str] = field(default_factory=dict)
    failed: tuple[tuple[str, str], ...] = ()
    first: tuple[str, ...] = ()
    seen: Seen = NOTHING_SEEN

    def again(self) -> Recommendation | None:
        """The recommendation of now.

        Raises:
            ValueError: the model's configuration is not known here.
        """
        asked = self.asked.asked
        return recommend(
            self.finding,
            self.why,
            self.plan,
            asked.spec,
            asked.of,
            self.kept,
            self.failed,
            first=self.first,
            seen=self.seen,
        )


@dataclass(frozen=True)
class Opening:
    """Who allows a change to be tried. ``ended``: when experiments of the service were over, oldest first."""

    allowed: tuple[str, ...]
    """Settings that may be tried without anybody's word."""
    approved: bool
    ended: tuple[float, ...]
    now: float
    timing: Timing

    def allows(self, setting: str) -> bool:
        """Whether somebody lets it be tried."""
        return self.approved or setting in self.allowed

    @property
    def early(self) -> str:
        """Why it is too early for another one; empty: it is not. A person needs no budget."""
        return "" if self.approved else over_budget(self.ended, self.now, self.timing)


def weighed(
    asked: Asked,
    plan: Mapping[str, Any],
    finding: str,
    why: str,
    kept: Mapping[str, str],
    failed: Collection[tuple[str, str]],
    first: Collection[str],
    seen: Seen,
) -> Weighed:
    """What ``recommend`` is given, for the log. ``plan``: the kept one that runs."""
    return Weighed(recorded(asked), _read(plan), finding, why, kept, tuple(sorted(failed)), tuple(sorted(first)), seen)


def _read(plan: Mapping[str, Any]) -> dict[str, Any]:
    choice: Mapping[str, Any] = plan["choice"]
    args: Sequence[str] = without_credentials(choice["args"])
    parts = {key: plan[key] for key in _READ if key in plan}
    memory = [{"bytes": item["bytes"]} for item in plan["memory"]]
    return {"choice": {**choice, "args": args}, "memory": memory, **parts}
