"""How far latency predictions are from measured points, and how long one takes."""

import statistics
import time
from math import expm1, log
from pathlib import Path

from plimsoll.core.kv import EngineOptions
from plimsoll.core.latency import Load, predict_latency
from plimsoll.core.latency.coefficients import fitted
from plimsoll.facts import catalogue, gpus
from plimsoll.facts.models import read_model
from tests.benchmarks.report import figure
from tools.latency_points import read_points
from tools.latency_solver import tpot_error, ttft_error

POINTS = Path(__file__).parent.parent / "data" / "latency-points.jsonl.gz"
ROUNDS = 200


def main() -> None:
    fit = fitted()
    points = [point for point in read_points(POINTS)[0] if point.trusted]
    for name, error, spread in (("tpot", tpot_error, fit.spreads.tpot), ("ttft", ttft_error, fit.spreads.ttft)):
        errors = [error(point, fit.coefficients) for point in points]
        median = statistics.median(abs(expm1(value)) for value in errors)
        inside = sum(log(spread.low) <= -value <= log(spread.high) for value in errors) / len(errors)
        figure(f"latency_{name}_median_error", 100 * median, "%", points=len(points), inside=round(inside, 3))
    figure("latency_prediction", _prediction_ms(), "ms", model="deepseek-ai/DeepSeek-V3")


def _prediction_ms() -> float:
    entry, gpu = catalogue.find("deepseek-ai/DeepSeek-V3"), gpus.find("NVIDIA-H200")
    assert entry is not None
    assert gpu is not None
    facts, options = read_model(entry.config, entry.quant_config), EngineOptions(device=gpu, tensor_parallel=8)
    load = Load(prompt_tokens=1024, output_tokens=512, concurrency=16)
    predict_latency(facts, options, load)
    start = time.perf_counter()
    for _ in range(ROUNDS):
        predict_latency(facts, options, load)
    return 1e3 * (time.perf_counter() - start) / ROUNDS
