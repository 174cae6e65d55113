"""Fitted sizes of what an engine needs beside weights and KV: ``coefficients.json``, by ``tools/fit_memory.py``."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Each has a physical meaning; bytes unless said otherwise.

    ``sort_bytes_per_logit``: sampling by sorting, up to 0.18; ``sample_bytes_per_logit``: without, from 0.19.
    ``hidden_states``: copies of one step's hidden states alive beside the sampler.
    ``layer_activations``: share of one layer's intermediate tensors alive at once.
    ``moe_workspace``: share of the expert kernels' two workspaces.
    ``non_torch_*``: driver, NCCL and library memory that grows while loading: one GPU, a group of GPUs, before 0.19.
    ``graph_bytes``: what the engine estimates for its graphs. ``*_spread``: half the width of the 90 % range.
    """

    sort_bytes_per_logit: float
    sample_bytes_per_logit: float
    hidden_states: float
    layer_activations: float
    moe_workspace: float
    fixed_bytes: int
    non_torch_single_bytes: int
    non_torch_group_bytes: int
    non_torch_before_bytes: int
    graph_bytes: int
    relative_spread: float
    fixed_spread_bytes: int


@cache
def fitted() -> Coefficients:
    """The coefficients of the last fit."""
    text = resources.files(__package__).joinpath("coefficients.json").read_text(encoding="utf-8")
    return Coefficients(**json.loads(text))
