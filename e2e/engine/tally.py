"""What a run of the suite has compared, for the line at its end."""

from collections import Counter, defaultdict
from typing import Final

KINDS: Final = {
    "starts": "starts compared",
    "flags": "flags checked by version",
    "metrics": "metrics checked by version",
    "conformance": "conformance cases",
    "oracle": "layouts planned anew",
}


class Tally:
    """Counts by kind, and within a kind by version or by who was asked."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def count(self, kind: str, of: str = "", amount: int = 1) -> None:
        self._counts[kind][of] += amount

    def __str__(self) -> str:
        return "; ".join(f"{KINDS[kind]}: {_listed(self._counts[kind])}" for kind in KINDS if self._counts[kind])


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{of} {count}".strip() for of, count in counts.items())
