"""The fit of latency coefficients: Gauss-Newton on their logarithms, points reweighted in each round.

The loss is a robust one of the logarithm of predicted over measured; a weak prior keeps each coefficient near what
hardware and published measurements of kernels allow, so that what the points do not decide stays plausible.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from plimsoll.core.latency.coefficients import Coefficients
from plimsoll.core.latency.load import steady_state
from tools.latency_points import Point

TOLERANCE: Final = 0.1
"""Log error up to which the loss is quadratic; beyond it grows with the error, so that outliers do not decide."""
PRIOR_WEIGHT: Final = 0.1
ROUNDS: Final = 15
ATTEMPTS: Final = 6
CHANGE: Final = 1e-4

# Start of the fit, and how far (a factor) one would believe it to be wrong.
PRIOR: Final[Mapping[str, tuple[float, float]]] = {
    "dense_bandwidth": (0.8, 1.16),
    "expert_bandwidth": (0.8, 1.22),
    "kv_bandwidth": (0.6, 1.22),
    "matmul_flops": (0.8, 1.22),
    "expert_flops": (0.4, 1.5),
    "attention_flops": (0.4, 1.5),
    "link_bandwidth": (0.75, 1.35),
    "activation_passes": (10, 1.65),
    "precision_gain": (0.7, 1.22),
    "unpack_seconds": (1.25e-13, 1.65),
    "routing_spread": (0.7, 1.35),
    "matrix_seconds": (6e-6, 1.35),
    "routing_seconds": (15e-6, 1.5),
    "all_reduce_seconds": (5e-6, 1.65),
    "request_seconds": (5e-6, 2.0),
    "step_seconds": (400e-6, 2.0),
    "prefill_layer_seconds": (30e-6, 1.65),
    "arrival_seconds": (0.012, 1.5),
    "wait_steps": (1.5, 1.65),
    "prefill_share": (1.0, 1.35),
    "burst_share": (0.08, 1.65),
}
TTFT_ONLY: Final = ("arrival_seconds", "wait_steps", "prefill_share", "burst_share")
STEP_ONLY: Final = tuple(name for name in PRIOR if name not in TTFT_ONLY)

Vector = list[float]
Error = Callable[[Point, Coefficients], float]


def tpot_error(point: Point, coefficients: Coefficients) -> float:
    """Logarithm of predicted over measured time per output token."""
    return math.log(_state(point, coefficients)[0] / point.tpot_seconds)


def ttft_error(point: Point, coefficients: Coefficients) -> float:
    """Logarithm of predicted over measured time to first token."""
    return math.log(_state(point, coefficients)[1] / point.ttft_seconds)


def _state(point: Point, coefficients: Coefficients) -> tuple[float, float]:
    state = steady_state(replace(point.times, fit=coefficients), point.load, point.limit)
    return state.tpot_seconds, state.ttft_seconds


def fit(points: Sequence[Point], start: Coefficients) -> Coefficients:
    """Step coefficients from time per output token, then the rest from time to first token."""
    stepped = _minimise(points, start, STEP_ONLY, tpot_error)
    return _minimise(points, stepped, TTFT_ONLY, ttft_error)


def _minimise(points: Sequence[Point], start: Coefficients, names: Sequence[str], error: Error) -> Coefficients:
    weights = _weights(points)
    best, loss = start, _loss(points, weights, start, names, error)
    damping = 1e-3
    for _ in range(ROUNDS):
        normal, gradient = _normal_equations(points, weights, best, names, error)
        for _ in range(ATTEMPTS):
            damped = [[v * (1 + damping * (i == j)) for j, v in enumerate(line)] for i, line in enumerate(normal)]
            trial = _moved(best, names, _solve(damped, gradient))
            trial_loss = _loss(points, weights, trial, names, error)
            if trial_loss < loss:
                break
            damping *= 8
        gain = loss - trial_loss
        if gain <= 0:
            return best
        best, loss, damping = trial, trial_loss, damping / 4
        if gain < 1e-4 * loss:
            return best
    return best


def _weights(points: Sequence[Point]) -> Vector:
    """Models count with the square root of their points."""
    count = {model: sum(point.model == model for point in points) for model in {point.model for point in points}}
    raw = [count[point.model] ** -0.5 for point in points]
    return [weight * len(raw) / sum(raw) for weight in raw]


def _loss(points: Sequence[Point], weights: Vector, at: Coefficients, names: Sequence[str], error: Error) -> float:
    data = sum(
        weight * TOLERANCE**2 * 2 * (math.sqrt(1 + (error(point, at) / TOLERANCE) ** 2) - 1)
        for point, weight in zip(points, weights, strict=True)
    )
    return data + PRIOR_WEIGHT * sum(_surprise(at, name) ** 2 for name in names)


def _surprise(at: Coefficients, name: str) -> float:
    """How far a coefficient is from its prior, in the prior's own measure."""
    centre, factor = PRIOR[name]
    return math.log(getattr(at, name) / centre) / math.log(factor)


def _normal_equations(
    points: Sequence[Point], weights: Vector, at: Coefficients, names: Sequence[str], error: Error
) -> tuple[list[Vector], Vector]:
    size = len(names)
    normal, gradient = [[0.0] * size for _ in names], [0.0] * size
    shifted = [_moved(at, [name], [CHANGE]) for name in names]
    for point, weight in zip(points, weights, strict=True):
        residual = error(point, at)
        trust = weight / math.sqrt(1 + (residual / TOLERANCE) ** 2)
        slopes = [(error(point, coefficients) - residual) / CHANGE for coefficients in shifted]
        for i, slope in enumerate(slopes):
            gradient[i] -= trust * slope * residual
            for j, other in enumerate(slopes):
                normal[i][j] += trust * slope * other
    for i, name in enumerate(names):
        scale = math.log(PRIOR[name][1])
        normal[i][i] += PRIOR_WEIGHT / scale**2
        gradient[i] -= PRIOR_WEIGHT * _surprise(at, name) / scale
    return normal, gradient


def _moved(at: Coefficients, names: Sequence[str], logs: Sequence[float]) -> Coefficients:
    return replace(at, **{name: getattr(at, name) * math.exp(by) for name, by in zip(names, logs, strict=True)})


def _solve(matrix: list[Vector], right: Vector) -> Vector:
    """Gaussian elimination; the matrix is positive definite."""
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, size):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - sum(rows[i][k] * found[k] for k in range(i + 1, size))) / rows[i][i]
    return found
