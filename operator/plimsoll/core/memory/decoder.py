"""What every part of the weight rules needs to know about the decoder around it."""

from dataclasses import dataclass

from plimsoll.facts.fields import Fields
from plimsoll.facts.models import ModelFacts


@dataclass(frozen=True)
class Decoder:
    """A model's facts with its text configuration opened; ``hidden`` is the width of its residual stream."""

    facts: ModelFacts
    text: Fields
    hidden: int


def open_decoder(facts: ModelFacts) -> Decoder:
    """Open the text configuration of a model."""
    return Decoder(facts, Fields(facts.raw, "", facts.model_type), facts.dims.hidden_size)
