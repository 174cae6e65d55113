"""Seconds of one engine step, and of a prompt's prefill, on one kind of GPU."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from plimsoll.core.latency.attention import Attention
from plimsoll.core.latency.coefficients import Coefficients
from plimsoll.core.latency.precision import half_precision
from plimsoll.core.latency.work import Matrices, Work
from plimsoll.facts.gpus import GPU

PCIE_BYTES_PER_SECOND: Final = 25e9
"""One direction of PCIe 4.0 x16 as collectives see it, where the GPUs have no NVLink (assumed, not in the points)."""
PCIE_ALL_REDUCE_SLOWDOWN: Final = 4.0
"""An all-reduce through host memory against one over NVLink (assumed, not in the points)."""
_HALF_BYTES: Final = 2
_ALL_REDUCES_PER_LAYER: Final = 2


@dataclass(frozen=True, slots=True)
class Machine:
    """Speeds of one GPU: bytes per second of its memory and of one direction of its link, FLOP/s by data type."""

    bandwidth: float
    flops: Mapping[str, float]
    half: str
    link: float
    linked: bool


def machine(gpu: GPU) -> Machine | None:
    """Speeds of a GPU; None when its bandwidth or its 16-bit rate is not known."""
    half = half_precision(gpu)
    if not gpu.bandwidth_bytes_per_second or not gpu.dense_flops.get(half):
        return None
    linked = gpu.nvlink_bytes_per_second > 0
    return Machine(
        bandwidth=gpu.bandwidth_bytes_per_second,
        flops={dtype: rate for dtype, rate in gpu.dense_flops.items() if rate},
        half=half,
        link=gpu.nvlink_bytes_per_second / 2 if linked else PCIE_BYTES_PER_SECOND,
        linked=linked,
    )


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Step times of one engine (data-parallel rank): what a planner, a simulator and a prediction share.

    With speculative decoding each decoding request puts ``drafts`` more tokens into a step, to be verified, after as
    many steps of ``drafter`` made them (None: drafting costs nothing, as with n-grams). A step passes all stages of a
    pipeline, whose other stages work on the other requests meanwhile. ``budget_tokens`` is the most a step processes
    (``max_num_batched_tokens``), ``data_parallel`` the engines whose tokens meet at the same experts, ``correction`` a
    factor learned in service on everything.
    """

    work: Work
    machine: Machine
    fit: Coefficients
    tensor_parallel: int
    budget_tokens: int
    drafts: int = 0
    drafter: "StepTimes | None" = None
    pipeline_parallel: int = 1
    data_parallel: int = 1
    correction: float = 1.0

    def step_seconds(
        self, decode_requests: float, kv_tokens: float, prefill_tokens: float = 0, context_tokens: float = 0
    ) -> float:
        """One step that decodes a token for each of ``decode_requests``, whose contexts are ``kv_tokens`` together,
        and prefills ``prefill_tokens`` of prompts that have ``context_tokens`` in the cache before them.
        """
        attention = self.prefill_attention_seconds(prefill_tokens, context_tokens)
        return self.correction * (self.body_seconds(decode_requests, kv_tokens, prefill_tokens) + attention)

    def prefill_seconds(
        self, prompt_tokens: float, context_tokens: float = 0, decode_requests: float = 0, kv_tokens: float = 0
    ) -> float:
        """All steps that ``prompt_tokens`` after ``context_tokens`` in the cache take, beside requests that decode."""
        chunks = self.chunks(prompt_tokens, decode_requests)
        body = chunks * self.body_seconds(decode_requests, kv_tokens, prompt_tokens / chunks)
        return self.correction * (body + self.prefill_attention_seconds(prompt_tokens, context_tokens))

    def chunks(self, prompt_tokens: float, decode_requests: float) -> int:
        """Steps that a prompt is cut into: decoding requests come first in a step's budget."""
        return max(1, math.ceil(prompt_tokens / self.room_tokens(decode_requests)))

    def room_tokens(self, decode_requests: float) -> float:
        """Prompt tokens that fit into a step beside decoding requests."""
        return max(1.0, self.budget_tokens - decode_requests * (1 + self.drafts))

    def prefill_attention_seconds(self, prompt_tokens: float, context_tokens: float = 0) -> float:
        """Attention among a prompt's own tokens, which grows with their square. Without the correction."""
        flops = sum(
            part.prefill_flops * (_pairs(context_tokens + prompt_tokens, part) - _pairs(context_tokens, part))
            for part in self.work.attention
        )
        return flops / (self.machine.flops[self.machine.half] * self.fit.attention_flops)

    def body_seconds(self, decode_requests: float, kv_tokens: float, prefill_tokens: float) -> float:
        """A step without the attention of its prompts, and without the correction."""
        verified = decode_requests * (1 + self.drafts)
        tokens, sampled = verified + prefill_tokens, verified + (1 if prefill_tokens else 0)
        work, fit = self.work, self.fit
        overhead = (
            fit.step_seconds
            + fit.matrix_seconds * work.matrices
            + fit.routing_seconds * work.routed_layers
            + fit.request_seconds * sampled
            + (fit.prefill_layer_seconds * work.layers if prefill_tokens else 0.0)
        )
        return (
            overhead
            + self._matmul_seconds(tokens, sampled)
            + self._expert_seconds(tokens)
            + self._decode_attention_seconds(decode_requests, kv_tokens)
            + self._all_reduce_seconds(tokens)
            + self._activation_seconds(tokens)
            + self._drafting_seconds(decode_requests, kv_tokens)
        )

    def _drafting_seconds(self, decode_requests: float, kv_tokens: float) -> float:
        if self.drafter is None or not decode_requests:
            return 0.0
        return self.drafts * self.drafter.body_seconds(decode_requests, kv_tokens, 0)

    def _matmul_seconds(self, tokens: float, sampled: float) -> float:
        """Matrices every token passes, and the one that makes logits: reading and computing overlap in part."""
        fit, work = self.fit, self.work
        reading = (work.dense.bytes + work.head.bytes) / (self.machine.bandwidth * fit.dense_bandwidth)
        reading += (work.dense.unpacked + work.head.unpacked) * fit.unpack_seconds
        computing = self._seconds_per_token(work.dense) * tokens + self._seconds_per_token(work.head) * sampled
        return math.hypot(reading, computing / fit.matmul_flops)

    def _expert_seconds(self, tokens: float) -> float:
        """Experts: only those that some token chose are read; tokens of all data-parallel engines come to them."""
        fit, work = self.fit, self.work
        if not work.expert_share:
            return 0.0
        arriving = tokens * self.data_parallel
        chosen = 1.0 - (1.0 - work.expert_share) ** (arriving * fit.routing_spread)
        reading = work.experts.bytes / (self.machine.bandwidth * fit.expert_bandwidth)
        reading += work.experts.unpacked * fit.unpack_seconds
        share = work.expert_share / work.expert_ranks
        computing = self._seconds_per_token(work.experts) * arriving * share
        return math.hypot(reading * chosen, computing / fit.expert_flops)

    def _decode_attention_seconds(self, requests: float, kv_tokens: float) -> float:
        """Reading the context of each request, as far as layers look back, and the recurrent states twice."""
        if not requests:
            return 0.0
        each = kv_tokens / requests
        parts = [(part, min(each, part.reach_tokens) * requests) for part in self.work.attention]
        read = sum(part.bytes_per_token * tokens for part, tokens in parts) + 2 * self.work.state_bytes * requests
        flops = (1 + self.drafts) * sum(part.decode_flops * tokens for part, tokens in parts)
        return math.hypot(
            read / (self.machine.bandwidth * self.fit.kv_bandwidth),
            flops / (self.machine.flops[self.machine.half] * self.fit.attention_flops),
        )

    def _all_reduce_seconds(self, tokens: float) -> float:
        """Two sums over ranks in each layer: a latency that grows with the logarithm of ranks, and the bytes."""
        ranks = self.tensor_parallel
        if ranks == 1:
            return 0.0
        moved = 2 * (ranks - 1) / ranks * tokens * self.work.hidden_size * _HALF_BYTES
        slowdown = 1.0 if self.machine.linked else PCIE_ALL_REDUCE_SLOWDOWN
        latency = self.fit.all_reduce_seconds * math.log2(ranks) * slowdown
        transfer = moved / (self.machine.link * self.fit.link_bandwidth)
        return _ALL_REDUCES_PER_LAYER * self.work.layers * (latency + transfer)

    def _activation_seconds(self, tokens: float) -> float:
        """Norms, residuals and quantisation pass over the whole hidden state in each layer, on every rank."""
        passed = tokens * self.work.hidden_size * _HALF_BYTES * self.work.layers
        return self.fit.activation_passes * passed / self.machine.bandwidth

    def _seconds_per_token(self, matrices: Matrices) -> float:
        """FLOPs of one token over the nominal rate, narrower types being less of a gain than the data sheet says."""
        half = self.machine.flops[self.machine.half]
        return sum(
            flops / (half * math.pow(self.machine.flops.get(dtype, half) / half, self.fit.precision_gain))
            for dtype, flops in matrices.flops.items()
        )


def _pairs(tokens: float, part: Attention) -> float:
    """Pairs of a query token and a token it looks at, over the first ``tokens`` of a sequence."""
    reach = min(tokens, part.reach_tokens)
    return reach * reach / 2 + (tokens - reach) * reach
