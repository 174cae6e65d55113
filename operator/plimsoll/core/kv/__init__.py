"""KV-cache arithmetic: what vLLM's own planner would lay out for a model, a device, a release and its flags."""

from plimsoll.core.kv.capacity import (
    Capacity,
    capacity,
    check_sequences,
    check_split,
    fitting_max_model_len,
    format_gib,
)
from plimsoll.core.kv.layers import layer_specs
from plimsoll.core.kv.layout import KVLayout, blocks_for_request, plan_layout
from plimsoll.core.kv.options import EngineOptions, Speculation
from plimsoll.core.kv.refusals import Refusal
from plimsoll.core.kv.resolve import Resolved, resolve

__all__ = [
    "Capacity",
    "EngineOptions",
    "KVLayout",
    "Refusal",
    "Resolved",
    "Speculation",
    "blocks_for_request",
    "capacity",
    "check_sequences",
    "check_split",
    "fitting_max_model_len",
    "format_gib",
    "layer_specs",
    "plan_layout",
    "resolve",
]
