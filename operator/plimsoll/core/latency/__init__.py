"""Latency of an engine: step times from what a model reads and computes, TPOT and TTFT of a load as ranges."""

from plimsoll.core.latency.estimate import LatencyEstimate, predict_latency, step_times
from plimsoll.core.latency.load import Load, running_limit
from plimsoll.core.latency.step import StepTimes

__all__ = ["LatencyEstimate", "Load", "StepTimes", "predict_latency", "running_limit", "step_times"]
