"""Fits the latency model to measured points and prints how well it predicts: ``python tools/fit_latency.py POINTS``.

POINTS is a JSON-lines file (or .gz) as described in ``tests/data/latency-points.md``. ``--check`` fits nothing: it
prints the figures of the committed coefficients.
"""

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from plimsoll.core.latency.coefficients import Coefficients, fitted
from tools.latency_points import Point, read_points
from tools.latency_solver import PRIOR, Error, fit, tpot_error, ttft_error

TARGET: Final = Path(__file__).parent.parent / "operator/plimsoll/core/latency/coefficients.json"
COVERAGE: Final = 0.9
WIDEST: Final = 3.0
"""High over low of a range. Nine models do not tell more precisely how far the tenth will be off."""
FIGURES: Final[Mapping[str, Error]] = {"tpot": tpot_error, "ttft": ttft_error}

Window = tuple[float, float]
Chosen = Callable[[Point], Coefficients]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", type=Path)
    parser.add_argument("--check", action="store_true", help="print the figures of the committed coefficients")
    arguments = parser.parse_args()
    points, refused = read_points(arguments.points)
    for why, count in Counter(refused).items():
        print(f"not used, {count} x {why}")
    if arguments.check:
        committed = fitted().coefficients
        table("committed coefficients", points, lambda _: committed)
        return
    TARGET.write_text(json.dumps(refit(points), indent=1) + "\n")
    print(f"\nwrote {TARGET}")


def refit(points: Sequence[Point]) -> dict[str, object]:
    """The content of the coefficients file; prints every figure on the way."""
    trusted = [point for point in points if point.trusted]
    everything = fit(trusted, Coefficients(**{name: centre for name, (centre, _) in PRIOR.items()}))
    print("\ncoefficients")
    for name, value in asdict(everything).items():
        print(f"  {name:24} {value:.3g}")
    table("in sample (doubtful rows and rows without a GPU are judged, never fitted)", points, lambda _: everything)
    by_model, by_gpu = (held_out(trusted, everything, key) for key in (lambda p: p.model, lambda p: p.gpu))
    table("models not in the fit", points, by_model)
    table("GPUs not in the fit", points, by_gpu, key=lambda point: point.gpu)
    stated = [point for point in points if point.stated]
    spreads = {name: covering(logs(stated, by_model, error), math.log(WIDEST)) for name, error in FIGURES.items()}
    for name, error in FIGURES.items():
        print(f"\nrange of {name}: {shown(spreads[name])}")
        for what, chosen in (("models", by_model), ("GPUs", by_gpu)):
            for which, some in (("trusted points", trusted), ("all points", stated)):
                print(
                    f"  {what} not in the fit, {which}: {inside(logs(some, chosen, error), spreads[name]):.1%} inside"
                )
        spreads[f"corrected_{name}"] = shortest(corrected(trusted, by_model, error))
        one_number(name, points, by_model, error)
        print(f"  range with it: {shown(spreads[f'corrected_{name}'])}")
    return document(everything, spreads, trusted)


def held_out(points: Sequence[Point], start: Coefficients, key: Callable[[Point], str]) -> Chosen:
    """For each point the coefficients of a fit that never saw its like; of all points where none were fitted."""
    names = sorted({key(point) for point in points})
    fits = {name: fit([point for point in points if key(point) != name], start) for name in names}
    return lambda point: fits.get(key(point), start)


def table(title: str, points: Sequence[Point], chosen: Chosen, key: Callable[[Point], str] = lambda p: p.model) -> None:
    print(f"\n{title}\n{'':43}points   TPOT: median  mean  bias   TTFT: median  bias")
    rows = {name: [point for point in points if key(point) == name] for name in sorted({key(p) for p in points})}
    rows["trusted points"] = [point for point in points if point.trusted]
    rows["all points with a stated GPU"] = [point for point in points if point.stated]
    for name, some in rows.items():
        tpot, ttft = (logs(some, chosen, error) for error in FIGURES.values())
        tpot_shown = f"{median_error(tpot):14.1%} {mean_error(tpot):6.0%} {-statistics.median(tpot):+5.2f}"
        print(f"  {name:40} {len(some):6} {tpot_shown} {median_error(ttft):14.1%} {-statistics.median(ttft):+5.2f}")


def one_number(name: str, points: Sequence[Point], chosen: Chosen, error: Error) -> None:
    print(f"one-number correction of {name} (model not in the fit; learned on half of its points, judged on the rest)")
    for group in sorted({point.group for point in points if point.stated}):
        some = [point for point in points if point.group == group]
        doubtful = "" if some[0].trusted else "  (doubtful)"
        print(f"  {' '.join(group):62} {median_error(corrected(some, chosen, error)):6.1%}{doubtful}")
    for which, some in (("trusted", [p for p in points if p.trusted]), ("all", [p for p in points if p.stated])):
        print(f"  {which + ' points':62} {median_error(corrected(some, chosen, error)):6.1%}")


def corrected(points: Sequence[Point], chosen: Chosen, error: Error) -> list[float]:
    """Truth over prediction (logarithms), each half of a group's points corrected by the median of the other half."""
    found: list[float] = []
    for group in sorted({point.group for point in points}):
        some = sorted((point for point in points if point.group == group), key=order)
        for learned, judged in ((some[::2], some[1::2]), (some[1::2], some[::2])):
            if learned:
                correction = statistics.median(logs(learned, chosen, error))
                found += [value - correction for value in logs(judged, chosen, error)]
    return found


def order(point: Point) -> tuple[float, ...]:
    load = point.load
    return point.times.tensor_parallel, load.prompt_tokens, load.output_tokens, load.concurrency, point.tpot_seconds


def logs(points: Sequence[Point], chosen: Chosen, error: Error) -> list[float]:
    """Logarithm of truth over prediction."""
    return [-error(point, chosen(point)) for point in points]


def median_error(values: Sequence[float]) -> float:
    """Median of |prediction / truth - 1|, from logarithms of truth over prediction."""
    return statistics.median(abs(math.expm1(-value)) for value in values) if values else math.nan


def mean_error(values: Sequence[float]) -> float:
    """Mean of the same."""
    return statistics.fmean(abs(math.expm1(-value)) for value in values)


def covering(values: Sequence[float], width: float) -> Window:
    """The window of that width which holds most values, in the middle of the places that do equally well."""
    ordered = sorted(values)
    held = {low: sum(low <= value <= low + width for value in ordered) for low in ordered}
    best = [low for low, count in held.items() if count == max(held.values())]
    last = max(value for value in ordered if value <= best[-1] + width)
    low = (best[-1] + last - width) / 2
    return low, low + width


def shortest(values: Sequence[float]) -> Window:
    """The narrowest window that holds the wanted share of values."""
    ordered = sorted(values)
    count = math.ceil(COVERAGE * len(ordered))
    return min(zip(ordered, ordered[count - 1 :], strict=False), key=lambda window: window[1] - window[0])


def inside(values: Sequence[float], window: Window) -> float:
    return sum(window[0] <= value <= window[1] for value in values) / len(values)


def shown(window: Window) -> str:
    low, high = map(math.exp, window)
    return f"{low:.2f} to {high:.2f} times the prediction, a factor {high / low:.2f}"


def document(coefficients: Coefficients, spreads: Mapping[str, Window], points: Sequence[Point]) -> dict[str, object]:
    return {
        "about": f"Made by tools/fit_latency.py from {len(points)} points measured on vLLM (tests/data)",
        "coefficients": {name: float(f"{value:.4g}") for name, value in asdict(coefficients).items()},
        "spreads": {
            name: {"low": round(math.exp(low), 3), "high": round(math.exp(high), 3)}
            for name, (low, high) in spreads.items()
        },
    }


if __name__ == "__main__":
    main()
