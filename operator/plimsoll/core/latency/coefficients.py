"""Fitted constants of step times: ``coefficients.json``, written by ``tools/fit_latency.py``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Each has a physical meaning, none belongs to a model or a GPU.

    Shares of what the data sheet says: ``dense_bandwidth``, ``expert_bandwidth``, ``kv_bandwidth`` (reading),
    ``matmul_flops``, ``expert_flops``, ``attention_flops`` (computing; of the 16-bit rate), ``link_bandwidth``.
    ``precision_gain``: the speed-up by a narrower data type is its nominal one to this power.
    ``unpack_seconds``: dequantising one element. ``routing_spread``: tokens choose experts as if there were only this
    share of them, because they agree more than chance. Seconds each: ``matrix_seconds`` (kernels around one matrix),
    ``routing_seconds`` (choosing and sorting in one expert layer), ``all_reduce_seconds`` (a doubling of ranks),
    ``request_seconds`` (sampling and book-keeping of one request in one step), ``step_seconds`` (scheduling one step),
    ``prefill_layer_seconds`` (launches outside CUDA graphs, one layer of a step with prompts).
    Time to first token: ``arrival_seconds`` (tokenise, respond), ``wait_steps`` (steps until a step takes it in),
    ``prefill_share`` (of its own prefill) and ``burst_share`` (of everybody's prefill, as clients start together).
    """

    dense_bandwidth: float
    expert_bandwidth: float
    kv_bandwidth: float
    matmul_flops: float
    expert_flops: float
    attention_flops: float
    link_bandwidth: float
    activation_passes: float
    precision_gain: float
    unpack_seconds: float
    routing_spread: float
    matrix_seconds: float
    routing_seconds: float
    all_reduce_seconds: float
    request_seconds: float
    step_seconds: float
    prefill_layer_seconds: float
    arrival_seconds: float
    wait_steps: float
    prefill_share: float
    burst_share: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Truth over prediction: the factors between which it is meant to lie in 90 % of cases."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Spreads:
    """Of both figures: for a model and GPU never measured, and once a correction was learned for them."""

    tpot: Spread
    ttft: Spread
    corrected_tpot: Spread
    corrected_ttft: Spread


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients, and how far from the truth their predictions are."""

    coefficients: Coefficients
    spreads: Spreads


@cache
def fitted() -> Fit:
    """The last fit."""
    text = resources.files(__package__).joinpath("coefficients.json").read_text(encoding="utf-8")
    document: Mapping[str, Any] = json.loads(text)
    spreads = {name: Spread(**factors) for name, factors in document["spreads"].items()}
    return Fit(Coefficients(**document["coefficients"]), Spreads(**spreads))
