"""How many KV blocks a request holds: the engine's view of a layout, as plain values.

The simulator takes these figures from its caller and never computes a layout itself, so that a fake engine and a test
oracle can use recorded ones.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockPool:
    """One engine's pool and what a request takes of it.

    ``num_blocks`` counts vLLM's null block, which never holds a token. ``full_groups`` layer groups keep every token
    and so take one block each per ``block_size_tokens``; each of ``capped_groups`` (sliding window, chunked attention)
    stops growing at that many blocks; ``state_blocks`` (Mamba, gated delta nets) are taken whatever the length.
    """

    num_blocks: int
    block_size_tokens: int = 16
    full_groups: int = 1
    capped_groups: tuple[int, ...] = ()
    state_blocks: int = 0

    @property
    def usable_blocks(self) -> int:
        """Blocks that can hold tokens or states: ``kv_cache_usage_perc`` is over these."""
        return self.num_blocks - 1

    def blocks(self, tokens: int) -> int:
        """Blocks of a request with so many tokens in the cache."""
        rows = -(-tokens // self.block_size_tokens)
        capped = sum(min(cap, rows) for cap in self.capped_groups) if self.capped_groups else 0
        return self.full_groups * rows + capped + self.state_blocks

    def growing_groups(self, tokens: int) -> int:
        """Groups that take one more block when the next row of ``block_size_tokens`` begins."""
        rows = -(-tokens // self.block_size_tokens)
        return self.full_groups + sum(rows < cap for cap in self.capped_groups)

    def next_cap_tokens(self, tokens: int) -> int | None:
        """The length at which the next group of such a request stops growing; None when no further one will."""
        rows = -(-tokens // self.block_size_tokens)
        later = [cap for cap in self.capped_groups if cap > rows]
        return min(later) * self.block_size_tokens if later else None


class Phases:
    """When the requests that decode side by side need their next block.

    All of them gain one token a step, so each needs a block once in ``block_size_tokens`` steps, at a phase of its own.
    Counting the blocks due by phase makes the need of *any* number of steps a matter of two sums, whatever the batch.
    """

    __slots__ = ("_due", "_size", "_total")

    def __init__(self, block_size_tokens: int) -> None:
        self._size = block_size_tokens
        self._due = [0] * block_size_tokens
        self._total = 0

    def add(self, phase: int, groups: int) -> None:
        """A request takes ``groups`` blocks whenever the step counter has this phase; negative when it leaves."""
        self._due[phase % self._size] += groups
        self._total += groups

    def due(self, step: int) -> int:
        """Blocks needed by the step with this number."""
        return self._due[step % self._size]

    def growth(self, step: int, steps: int) -> int:
        """Blocks needed by ``steps`` steps from number ``step`` on."""
        cycles, rest = divmod(steps, self._size)
        start = step % self._size
        end = start + rest
        due = self._due
        part = sum(due[start:end]) if end <= self._size else sum(due[start:]) + sum(due[: end - self._size])
        return cycles * self._total + part

    def steps_within(self, step: int, free_blocks: int, at_most: int) -> int:
        """The most steps, up to ``at_most``, that need no more than ``free_blocks``."""
        # Every request takes at most one row a cycle: far from the limit the exact count is not needed.
        if self._total * (at_most // self._size + 1) <= free_blocks:
            return at_most
        if self.growth(step, at_most) <= free_blocks:
            return at_most
        low, high = 0, at_most
        while high - low > 1:
            middle = (low + high) // 2
            if self.growth(step, middle) <= free_blocks:
                low = middle
            else:
                high = middle
        return low
