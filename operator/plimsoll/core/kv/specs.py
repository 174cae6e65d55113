"""What one layer's cache is to the planner: its kind, tokens a block, bytes a page, blocks a request holds."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Literal, Self

Kind = Literal["full", "latent", "sliding", "sliding_latent", "chunked", "cross", "state", "ring"]


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One cache of one layer on one rank; equal specs may share a group.

    ``natural_bytes`` is what a block of ``block_tokens`` needs, ``padded_bytes`` what it takes where pages were made
    equal. ``content`` tells caches of equal size apart (heads, widths, dtype). ``stride_bytes`` is the unit that
    consecutive blocks must be apart by. ``sharded``: decode context parallelism splits its tokens;
    ``replicated``: a state that is whole on every rank; ``keeps_every_state``: one is kept for every block of tokens.
    """

    kind: Kind
    block_tokens: int
    natural_bytes: int
    content: Hashable
    padded_bytes: int | None = None
    window_tokens: int = 0
    retained_tokens: int = 0
    encoder_tokens: int = 0
    state_blocks: int = 0
    sharded: bool = True
    replicated: bool = False
    keeps_every_state: bool = False
    stride_bytes: int = 1

    @property
    def page_bytes(self) -> int:
        """Bytes of one block of this layer."""
        return self.natural_bytes if self.padded_bytes is None else self.padded_bytes

    @property
    def stride(self) -> int:
        """Bytes from one block of this layer to the next where layers lie one after another."""
        return round_up(self.page_bytes, self.stride_bytes)

    def padded_to(self, page_bytes: int) -> Self:
        """The same cache with a larger page."""
        return replace(self, padded_bytes=page_bytes)

    def with_block(self, block_tokens: int) -> Self:
        """The same cache with ``block_tokens`` a block, its page in proportion."""
        natural = self.natural_bytes * block_tokens // self.block_tokens
        return replace(self, block_tokens=block_tokens, natural_bytes=natural)

    def as_full(self, block_tokens: int) -> Self:
        """A windowed cache budgeted for every token, as without the hybrid manager; other kinds stay as they are."""
        if self.kind not in {"sliding", "sliding_latent", "chunked"}:
            return self
        kind: Kind = "latent" if self.kind == "sliding_latent" else "full"
        return replace(self.with_block(block_tokens), kind=kind, window_tokens=0, retained_tokens=0)

    def blocks_for(self, tokens: int, in_flight_tokens: int, context_parallel: int = 1) -> int:
        """Blocks that one request of ``tokens`` may hold, with ``in_flight_tokens`` scheduled but not settled.

        Source: vLLM 0.32 ``v1/kv_cache_interface.py``, ``max_memory_usage_bytes`` of each spec.
        """
        if self.kind == "state":
            history = ceil_div(tokens, self.block_tokens) if self.keeps_every_state else 0
            return self.state_blocks + history
        if self.kind == "ring":
            return 1
        if self.kind == "cross":
            return ceil_div(self.encoder_tokens, self.block_tokens)
        if self.kind == "chunked":
            return ceil_div(min(self.window_tokens + in_flight_tokens, tokens), self.block_tokens)
        if self.kind in {"sliding", "sliding_latent"}:
            held = min(self.window_tokens - 1 + self.retained_tokens + in_flight_tokens, tokens)
            return ceil_div(held, self.block_tokens) + 1
        return ceil_div(ceil_div(tokens, context_parallel) if self.sharded else tokens, self.block_tokens)


def ceil_div(value: int, divisor: int) -> int:
    """Whole units that hold ``value``."""
    return -(-value // divisor)


def round_up(value: int, unit: int) -> int:
    """The next multiple of ``unit``."""
    return ceil_div(value, unit) * unit
