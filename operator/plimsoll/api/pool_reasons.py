"""Reasons of KVPredictionAccurate: whether the KV cache that engines found is the one that was planned."""

from typing import Final

from plimsoll.api.names import KV_PREDICTION_ACCURATE
from plimsoll.api.reason import Reason, table

_ACCURATE: Final = (KV_PREDICTION_ACCURATE,)

PREDICTED: Final = Reason(
    "Predicted", _ACCURATE, "The engines' KV cache is within the range that was planned.", "Nothing to do."
)
POOL_SMALLER: Final = Reason(
    "PoolSmaller",
    _ACCURATE,
    "The engines found less memory for KV cache than the low end of the plan. They serve; fewer requests run at once.",
    "Nothing breaks. Plans made from now on use what these pods report; PlanUpdateAvailable says when that "
    "would choose otherwise. If it is far off, report the engine's start-up log.",
)
POOL_LARGER: Final = Reason(
    "PoolLarger",
    _ACCURATE,
    "The engines found more memory for KV cache than the high end of the plan.",
    "Nothing to do: more requests run at once. Plans made from now on use what these pods report.",
)
POOLS_DIFFER: Final = Reason(
    "PoolsDiffer",
    _ACCURATE,
    "Engines of one plan found different amounts of memory for KV cache; nothing is learned from them.",
    "Look at what else uses the GPUs of the pod that the message names: another process, a display, a leftover engine. "
    "A known amount belongs into the inventory's reserve (docs/inventory.md).",
)

REASONS: Final = table(globals())
