"""Device memory of one engine rank: what weights, activations, graphs and the driver take, and what is left for KV."""

from plimsoll.core.memory.budget import MemoryBudget, budget
from plimsoll.core.memory.flags import MemoryFlags

__all__ = ["MemoryBudget", "MemoryFlags", "budget"]
