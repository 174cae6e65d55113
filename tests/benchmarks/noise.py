"""Made-up experiments in which both pods have the same flags: noise that lasts, as queues make it."""

import math
from dataclasses import dataclass
from random import Random

from plimsoll.core.judge import WINDOWS, Pair, Window


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms, and how much of a window's noise is left in the next."""

    ttft: float = 0.5
    token: float = 0.06
    memory: float = 0.6
    requests: float = 40.0


def pairs(seed: int, noise: Noise, windows: int = WINDOWS) -> list[Pair]:
    """One experiment that changes nothing: shared load, and noise of each pod's own."""
    random = Random(seed)
    load = _lasting(random, 0.6, 0.9, windows)
    pods = [_windows(random, noise, load) for _ in range(2)]
    return [Pair(control, canary) for control, canary in zip(*pods, strict=True)]


def _windows(random: Random, noise: Noise, load: list[float]) -> list[Window]:
    ttft, token = (_lasting(random, sigma, noise.memory, len(load)) for sigma in (noise.ttft, noise.token))
    return [_window(random, noise, load[at], ttft[at], token[at]) for at in range(len(load))]


def _window(random: Random, noise: Noise, load: float, ttft: float, token: float) -> Window:
    finished = float(max(0, round(random.gauss(noise.requests, math.sqrt(noise.requests)))))
    first, each = 2.0 * math.exp(load + ttft), 0.03 * math.exp(0.1 * load + token)
    return Window(
        ttft_seconds=first,
        token_seconds=each,
        token_tail_seconds=2 * each,
        request_seconds=first + 300 * each,
        tokens=finished * 300 / 60,
        finished=finished,
        waiting=10 * math.exp(load),
        usage=0.6,
        preemptions=float(sum(random.random() < 0.01 for _ in range(int(finished)))),
        failed=float(random.random() < 0.02),
    )


def _lasting(random: Random, sigma: float, memory: float, windows: int) -> list[float]:
    """An autoregressive series of the given standard deviation."""
    value, series = random.gauss(0, sigma), []
    for _ in range(windows):
        series.append(value)
        value = memory * value + math.sqrt(1 - memory**2) * random.gauss(0, sigma)
    return series
