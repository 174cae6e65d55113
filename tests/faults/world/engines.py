"""The fake engine: a pool of blocks, so many requests at once, a line for the rest. A fluid, exact in its averages.

``sim/engine.py`` simulates every request; here a fleet has to run for hours in a moment, and what the operator reads of
it are gauges and rates. Its pool is the plan's own, so that a fleet as planned behaves as planned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

_CAP: Final = "--max-num-seqs"
_DTYPE: Final = "--kv-cache-dtype"
_STEP: Final = "--max-num-batched-tokens"
FIRST_SHARE: Final = 0.1
"""Of a request's time, until its first token: with steps of so many tokens, and with larger ones the less."""
USUAL_STEP: Final = 2048


@dataclass(frozen=True)
class Offered:
    """Traffic of a whole service, from now on."""

    requests_per_second: float = 0.0
    prompt_tokens: int = 1000
    output_tokens: int = 200


@dataclass(frozen=True)
class Pool:
    """What an engine has: room for so many requests, ``slots`` of them at once, each of which takes ``seconds``."""

    num_blocks: int
    block_tokens: int
    slots: int
    seconds: float
    room: int
    first_seconds: float
    """Until the first token of a request that does not wait."""


@dataclass
class Engine:
    """One engine that serves. Totals since its start."""

    pool: Pool
    at_seconds: float
    running: float = 0.0
    waiting: float = 0.0
    arrived: float = 0.0
    finished: float = 0.0
    prompt_tokens: float = 0.0
    generation_tokens: float = 0.0
    preemptions: float = 0.0

    def advance(self, now_seconds: float, offered: Offered, share: float) -> None:
        """Serve its share of the traffic up to now."""
        seconds, self.at_seconds = now_seconds - self.at_seconds, now_seconds
        if seconds <= 0:
            return
        arrivals = offered.requests_per_second * share * seconds
        most = self.pool.slots / self.pool.seconds * seconds
        served = min(self.waiting + arrivals, most)
        self.waiting += arrivals - served
        self.running = min(float(self.pool.slots), served / seconds * self.pool.seconds)
        self.arrived += arrivals
        self.finished += served
        self.prompt_tokens += served * offered.prompt_tokens
        self.generation_tokens += served * offered.output_tokens
        if self.waiting > self.pool.slots == self.pool.room:
            self.preemptions += 0.05 * served

    @property
    def usage(self) -> float:
        """Share of the pool in use."""
        return min(1.0, self.running / self.pool.room)


def pool_of(plan: Mapping[str, Any], seconds: float, args: Sequence[str] = ()) -> Pool:
    """The engine of a plan, as planned, with the cap on requests and the KV data type that its container was given."""
    kv = plan["kv"]
    halved = _dtype(args) == "fp8" != _dtype(plan["choice"]["args"])
    blocks = int(kv["numBlocks"]) * (2 if halved else 1)
    per_request = int((plan.get("typical") or {}).get("blocks") or kv.get("blocksPerRequestAtLoad") or 64)
    room = max(1, (blocks - 1) // per_request)
    first = FIRST_SHARE * seconds * min(1.0, USUAL_STEP / _number(args, _STEP, USUAL_STEP))
    return Pool(blocks, int(kv["blockSize"]), min(room, _number(args, _CAP, 1 << 30)), seconds, room, first)


def _dtype(args: Sequence[str]) -> str:
    """``--kv-cache-dtype``, in either spelling; the last one counts."""
    words = " ".join(args).replace("=", " ").split()
    found = [after for flag, after in pairwise(words) if flag == _DTYPE]
    return found[-1] if found else "auto"


def _number(args: Sequence[str], flag: str, without: int) -> int:
    """A flag's number, in either spelling; ``without`` it."""
    words = " ".join(args).replace("=", " ").split()
    return int(words[words.index(flag) + 1]) if flag in words else without
