"""Fitted sizes of what an engine needs beside weights and KV: ``coefficients.json``, by ``tools/fit_memory.py``."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Few, each with a physical meaning; none for a model.

    ``sort_bytes_per_logit``: a sampler's copies of each logit when it sorts, up to 0.18; ``sample_bytes_per_logit``
    from 0.19 on. ``hidden_states``: copies of one step's hidden states alive beside the sampler.
    ``layer_activations``: share of one layer's intermediate tensors alive at once. ``encoder_activations``: tensors of
    its width that a vision tower holds a patch. ``encoder_outputs``: copies of one step's image embeddings.
    ``moe_workspace``: share of the expert kernels' two workspaces. ``fixed_bytes``: what is always there.
    ``non_torch_*``: driver, NCCL and libraries: one GPU, a group of GPUs and for each of them, any before 0.19.
    ``graph_bytes``: the engine's estimate for one layer of one captured size.
    ``spread_*``: half the width of the 90 % range: of what is reserved, of what was requested (``_elsewhere`` on GPUs
    that are not NVIDIA's or share their host's memory), and fixed.
    """

    sort_bytes_per_logit: float
    sample_bytes_per_logit: float
    hidden_states: float
    layer_activations: float
    encoder_activations: float
    encoder_outputs: float
    moe_workspace: float
    fixed_bytes: int
    non_torch_single_bytes: int
    non_torch_group_bytes: int
    non_torch_rank_bytes: int
    non_torch_before_bytes: int
    graph_bytes: int
    spread_reserve: float
    spread_requested: float
    spread_elsewhere: float
    spread_bytes: int


@cache
def fitted() -> Coefficients:
    """The coefficients of the last fit."""
    text = resources.files(__package__).joinpath("coefficients.json").read_text(encoding="utf-8")
    return Coefficients(**json.loads(text))
