"""The prefix cache: blocks that nobody uses stay readable until they are needed, least recently used first.

As in vLLM 0.33 ``v1/core/block_pool.py``: cached blocks without a user count as free (so the cache never shows in
``kv_cache_usage_perc``), a freed request's last blocks are taken before its first, and a hit takes them back.
Here a *piece* (a stretch of prompt with an identity) stands for the chain of its blocks.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence

Piece = tuple[Hashable, int]
"""Identity of a stretch of tokens, given everything before it, and its length in blocks."""


class PrefixCache:
    """Which pieces are in the pool, who uses them, and which go first when room is needed. Counts are blocks."""

    __slots__ = ("_idle", "_users", "idle_blocks")

    def __init__(self) -> None:
        self._idle: OrderedDict[Hashable, int] = OrderedDict()
        self._users: dict[Hashable, int] = {}
        self.idle_blocks = 0

    def hits(self, pieces: Sequence[Piece]) -> int:
        """How many of the pieces, from the first on, could be read now."""
        for count, (identity, _) in enumerate(pieces):
            if identity not in self._users and identity not in self._idle:
                return count
        return len(pieces)

    def held_by_others(self, pieces: Sequence[Piece]) -> int:
        """Blocks of the pieces that somebody uses already, so that one more user takes nothing."""
        return sum(blocks for identity, blocks in pieces if identity in self._users)

    def acquire(self, pieces: Sequence[Piece]) -> int:
        """Use the pieces, cached or about to be computed; the blocks that this takes from the free ones."""
        taken = 0
        for identity, blocks in pieces:
            users = self._users.get(identity, 0)
            if not users:
                taken += blocks
                self.idle_blocks -= self._idle.pop(identity, 0)
            self._users[identity] = users + 1
        return taken

    def release(self, pieces: Sequence[Piece]) -> int:
        """Stop using the pieces; the blocks that become free. They stay readable until evicted."""
        freed = 0
        for identity, blocks in reversed(pieces):
            users = self._users[identity] - 1
            if users:
                self._users[identity] = users
            else:
                del self._users[identity]
                self.keep(identity, blocks)
                freed += blocks
        return freed

    def keep(self, identity: Hashable, blocks: int) -> None:
        """Blocks nobody uses any more, readable under this identity until evicted."""
        if blocks > 0:
            self._idle[identity] = blocks
            self.idle_blocks += blocks

    def take(self, identity: Hashable) -> int:
        """What is left of an idle entry; it is no longer cached afterwards."""
        blocks = self._idle.pop(identity, 0)
        self.idle_blocks -= blocks
        return blocks

    def shrink_to(self, free_blocks: int) -> None:
        """Evict, oldest first and each from its end, until the idle blocks are within the free ones."""
        excess = self.idle_blocks - free_blocks
        while excess > 0:
            identity, blocks = next(iter(self._idle.items()))
            if blocks > excess:
                self._idle[identity] = blocks - excess
                self.idle_blocks -= excess
                return
            self.take(identity)
            excess -= blocks
