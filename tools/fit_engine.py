"""Fit the step times of the simulator's named engines: `python -m tools.fit_engine [--check]`.

Each measured run (`tests/data/vllm_measured`) is replayed, and the constants are those whose simulated times of the
**first 100 requests** are nearest to the measured ones, by Nelder and Mead's simplex. The other 200 judge: their
errors are printed, and held by `tests/unit/sim/test_fidelity.py`. Writes `operator/plimsoll/sim/engines.json`; with
`--check` only says whether it would change.
"""

import csv
import gzip
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from plimsoll.sim.blocks import BlockPool
from plimsoll.sim.engine import NEVER, Engine, EngineLimits
from plimsoll.sim.models import EngineModel
from plimsoll.sim.requests import Request
from plimsoll.sim.steps import FittedSteps

ROOT: Final = Path(__file__).parent.parent
RUNS: Final = ROOT / "tests/data/vllm_measured"
TABLE: Final = ROOT / "operator/plimsoll/sim/engines.json"

FITTED_REQUESTS: Final = 100
ROUNDS: Final = 250
SPREAD: Final = 0.2
TTFT_WEIGHT: Final = 0.2
TTFT_FLOOR_SECONDS: Final = 0.1

START: Final = FittedSteps(0.001, 0.02, 6e-5, 1e-7, 2e-9, 2e-5)
EXPERTS: Final = replace(START, base_seconds=0.01, weights_seconds=0.001, expert_seconds=0.02, expert_tokens=32)
SMALL: Final = EngineLimits(128, 2048)


@dataclass(frozen=True)
class Run:
    """A measured run, and the engines it ran on: how many share its requests, and where the fit begins."""

    file: str
    pool: BlockPool
    limits: EngineLimits
    start: FittedSteps = START
    engines: int = 1
    gpus: int = 1


RUNS_OF: Final = {
    "rtx4090-llama-3.1-8b": Run("RTX4090_Llama-3.1-8B", BlockPool(2588), EngineLimits(256, 2048)),
    "rtxpro6000-llama-3.1-8b": Run("RTXPRO6000_Llama-3.1-8B", BlockPool(30_000), SMALL),
    "rtxpro6000-qwen3-32b-tp2": Run("RTXPRO6000_Qwen3-32B", BlockPool(30_000), SMALL, gpus=2),
    "rtxpro6000-qwen3-30b-a3b": Run("RTXPRO6000_Qwen3-30B-A3B", BlockPool(20_000), SMALL, start=EXPERTS, engines=2),
}


@dataclass(frozen=True)
class Measured:
    """One request of a run. Seconds from the run's start."""

    arrival_seconds: float
    prompt_tokens: int
    output_tokens: int
    first_token_seconds: float
    last_token_seconds: float

    @property
    def ttft_seconds(self) -> float:
        """Time to first token."""
        return self.first_token_seconds - self.arrival_seconds

    @property
    def tpot_seconds(self) -> float:
        """Mean time between the tokens after the first; 0 for a single token."""
        gaps = self.output_tokens - 1
        return (self.last_token_seconds - self.first_token_seconds) / gaps if gaps else 0.0


@dataclass(frozen=True)
class Replay:
    """What the simulator made of a run; ``ticks`` are (running, waiting, usage) at the moments asked for."""

    requests: list[Request]
    ticks: list[tuple[int, int, float]]
    preemptions: int


def read_run(file: str) -> list[Measured]:
    """The requests of a run, in the order of their arrival."""
    with gzip.open(RUNS / f"{file}_requests.csv.gz", "rt") as lines:
        rows = list(csv.DictReader(lines))
    return [
        Measured(
            float(row["arrival_s"]),
            int(row["prompt_tokens"]),
            int(row["output_tokens"]),
            float(row["first_token_s"]),
            float(row["last_token_s"]),
        )
        for row in rows
    ]


def replay(rows: Sequence[Measured], model: EngineModel, engines: int = 1, at_seconds: Sequence[float] = ()) -> Replay:
    """The same requests at the same moments, sent to the engine with the fewest, as vLLM's front end balances ranks."""
    fleet = [model.engine() for _ in range(engines)]
    requests = [Request(row.arrival_seconds, row.prompt_tokens, row.output_tokens) for row in rows]
    ticks: list[tuple[int, int, float]] = []
    coming, moments = iter(requests), iter(at_seconds)
    arriving, moment = next(coming, None), next(moments, NEVER)
    while True:
        first = min(fleet, key=lambda engine: engine.next_seconds)
        arrival = arriving.arrival_seconds if arriving else NEVER
        now = min(arrival, first.next_seconds)
        while moment <= now and moment < NEVER:
            ticks.append(_tick(fleet, moment))
            moment = next(moments, NEVER)
        if now == NEVER:
            return Replay(requests, ticks, sum(engine.counters.preemptions for engine in fleet))
        if arriving and arrival == now:
            min(fleet, key=lambda engine: 4 * engine.waiting + engine.running).submit(arriving, now)
            arriving = next(coming, None)
        else:
            first.advance()


def _tick(fleet: Sequence[Engine], moment: float) -> tuple[int, int, float]:
    return sum(e.running for e in fleet), sum(e.waiting for e in fleet), max(e.usage(moment) for e in fleet)


def loss(simulated: Sequence[Request], measured: Sequence[Measured]) -> float:
    """Mean squared error of the logarithms of whole and per-token times, and, weighing less, of the first token's."""
    total = 0.0
    for got, row in zip(simulated, measured, strict=True):
        whole = (got.finish_seconds - got.arrival_seconds) / (row.last_token_seconds - row.arrival_seconds)
        first = (got.ttft_seconds - row.ttft_seconds) / (TTFT_FLOOR_SECONDS + row.ttft_seconds)
        total += math.log(whole) ** 2 + TTFT_WEIGHT * first**2
        if row.output_tokens > 1:
            total += math.log(max(1e-9, got.tpot_seconds) / row.tpot_seconds) ** 2
    return total / len(measured)


def fit(run: Run) -> FittedSteps:
    """The constants nearest to the first requests of a run. What the start has as 0 stays 0."""
    rows = read_run(run.file)
    free = [name for name, value in asdict(run.start).items() if value and name != "expert_tokens"]

    def constants(point: Sequence[float]) -> FittedSteps:
        return replace(run.start, **dict(zip(free, point, strict=True)))

    def error(point: Sequence[float]) -> float:
        found = replay(rows, EngineModel(run.pool, run.limits, constants(point)), run.engines)
        return loss(found.requests[:FITTED_REQUESTS], rows[:FITTED_REQUESTS])

    best = minimise(error, [getattr(run.start, name) for name in free])
    return constants([float(f"{value:.3g}") for value in best])


def minimise(error: Callable[[Sequence[float]], float], start: Sequence[float]) -> list[float]:
    """Nelder and Mead's simplex over positive numbers, a fixed number of rounds."""
    corners = [list(start)]
    corners += [[v * (1 + SPREAD) if i == j else v for j, v in enumerate(start)] for i in range(len(start))]
    simplex = [(error(corner), corner) for corner in corners]
    for _ in range(ROUNDS):
        simplex.sort(key=lambda pair: pair[0])
        _improve(simplex, error)
    return min(simplex, key=lambda pair: pair[0])[1]


def _improve(simplex: list[tuple[float, list[float]]], error: Callable[[Sequence[float]], float]) -> None:
    """One round: replace the worst corner, or draw all towards the best."""
    (best, nearest), (worst, far) = simplex[0], simplex[-1]
    middle = [sum(axis) / (len(simplex) - 1) for axis in zip(*(c for _, c in simplex[:-1]), strict=True)]

    def corner(factor: float) -> tuple[float, list[float]]:
        point = [abs(m + factor * (f - m)) for m, f in zip(middle, far, strict=True)]
        return error(point), point

    mirrored = corner(-1)
    if mirrored[0] < best:
        simplex[-1] = min(mirrored, corner(-2), key=lambda pair: pair[0])
    elif mirrored[0] < simplex[-2][0]:
        simplex[-1] = mirrored
    elif (halved := corner(0.5))[0] < worst:
        simplex[-1] = halved
    else:
        drawn = [[(a + b) / 2 for a, b in zip(nearest, c, strict=True)] for _, c in simplex[1:]]
        simplex[1:] = [(error(point), point) for point in drawn]


def row_of(run: Run, steps: FittedSteps) -> dict[str, Any]:
    """A row of the table of engine models."""
    return {"pool": asdict(run.pool), "limits": asdict(run.limits), "steps": asdict(steps), "gpus": run.gpus}


def main() -> int:
    """Fit all; exit code 1 when ``--check`` finds another table."""
    table = {name: row_of(run, fit(run)) for name, run in RUNS_OF.items()}
    text = json.dumps(table, indent=1) + "\n"
    if "--check" in sys.argv:
        return int(text != TABLE.read_text())
    TABLE.write_text(text)
    print(f"wrote {TABLE.relative_to(ROOT)}: {', '.join(table)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
