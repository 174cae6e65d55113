"""``--hub``: what the bundled catalogue does not know is asked of the Hugging Face hub."""

from functools import lru_cache
from typing import Annotated, Final

import typer

from plimsoll.adapters.hub import HubError, fetch
from plimsoll.core.plan.model import ModelConfig

REMEMBERED_MODELS: Final = 256

HubOption = Annotated[
    bool,
    typer.Option("--hub", help="Ask the Hugging Face hub for models that the catalogue does not know (extra `hub`)."),
]


@lru_cache(maxsize=REMEMBERED_MODELS)
def hub_config(model_id: str) -> ModelConfig:
    """The hub's configuration of a model. Raises HubError."""
    found = fetch(model_id)
    return ModelConfig(found.config, found.quant_config, found.origin, found.weights_bytes)


__all__ = ["HubError", "HubOption", "hub_config"]
