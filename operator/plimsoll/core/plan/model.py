"""Where a model's configuration comes from, as a value the planner can be given."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from plimsoll.core.drift import digest
from plimsoll.facts import catalogue


@dataclass(frozen=True)
class ModelConfig:
    """A ``config.json`` with the quantisation file beside it, and where they were read."""

    config: Mapping[str, Any]
    quant_config: Mapping[str, Any] | None
    origin: str
    weights_bytes: int | None = None
    """Bytes of all tensors of the checkpoint, where somebody counted them."""
    draft: "ModelConfig | None" = None
    """Of the draft model that the request names, where its configuration is not the bundled catalogue's."""

    @cached_property
    def mark(self) -> str:
        """What it says, in short: what was planned from another one is another plan."""
        draft = self.draft.mark if self.draft else ""
        return digest([self.origin, self.config, self.quant_config, self.weights_bytes, draft])


@lru_cache(maxsize=32)
def bundled_config(model_id: str) -> ModelConfig | None:
    """The bundled catalogue's configuration of a model, or None."""
    entry = catalogue.find(model_id)
    if entry is None:
        return None
    return ModelConfig(entry.config, entry.quant_config, f"bundled catalogue ({entry.source})")
