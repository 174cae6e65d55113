"""How often experiments that change nothing end in a verdict, beside what simpler ways of looking would say of them."""

import math
from collections.abc import Sequence

from plimsoll.core.judge import Pair, Question, alarm, judge
from tests.benchmarks.noise import Noise, pairs
from tests.benchmarks.report import figure

SEEDS = 1000
LEAST = 6
"""Windows before somebody who looks at each of them begins to."""
Z95 = 1.645
WORTH = math.log(0.95)


def main() -> None:
    """Percent of A/A experiments with a false verdict, by how long noise lasts."""
    for memory in (0.0, 0.3, 0.6, 0.8):
        made = [pairs(seed, Noise(memory=memory)) for seed in range(SEEDS)]
        for name, says in (("judge", _judged), ("naive, one look", _naive), ("naive, every window", _peeking)):
            wrong = 100 * sum(map(says, made)) / SEEDS
            figure("judge_aa", wrong, "percent", way=name, noise_memory=memory, seeds=SEEDS)


def _judged(found: Sequence[Pair]) -> bool:
    alarmed = any(alarm(found[: at + 1]) for at in range(len(found)))
    return alarmed or judge(found, Question("ttft")).outcome != "inconclusive"


def _naive(found: Sequence[Pair]) -> bool:
    """Windows as if they were independent, 5 % either way, and 5 % of gain is enough."""
    logs = [math.log(p.canary.ttft_seconds / p.control.ttft_seconds) for p in found if _both(p)]  # type: ignore[union-attr, operator]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((each - mean) ** 2 for each in logs) / (len(logs) - 1) / len(logs))
    return mean + Z95 * spread < WORTH or mean - Z95 * spread > -WORTH


def _peeking(found: Sequence[Pair]) -> bool:
    return any(_naive(found[:count]) for count in range(LEAST, len(found) + 1))


def _both(pair: Pair) -> bool:
    return pair.control is not None and pair.canary is not None


if __name__ == "__main__":
    main()
