"""Parameters of a model and how tensor, expert and pipeline parallelism cut them."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

VOCABULARY_PADDING: Final = 64
ANY_LAYER: Final = "*"
"""Stands for a layer's number in the names of layers that are built alike."""


class Cut(Enum):
    """Which dimension tensor parallelism divides."""

    NONE = "none"
    OUTPUTS = "outputs"
    INPUTS = "inputs"
    HEADS = "heads"
    """Whole heads; a rank keeps at least one, so KV heads are repeated once there are more ranks than heads."""
    VOCABULARY = "vocabulary"
    """Outputs, after padding to a multiple of 64."""
    EXPERT_OUTPUTS = "expert outputs"
    """Outputs of each expert, or whole experts under expert parallelism."""
    EXPERT_INPUTS = "expert inputs"


@dataclass(frozen=True, slots=True)
class Ranks:
    """Parallel sizes of one engine, as far as weights depend on them."""

    tensor: int = 1
    expert: int = 1
    """Ranks that share the experts whole (expert parallelism)."""
    expert_tensor: int = 0
    """Ranks that cut every expert instead; 0 means ``tensor``."""


@dataclass(frozen=True, slots=True)
class Padding:
    """What an expert kernel rounds a rank's share up to."""

    hidden: int = 1
    intermediate: int = 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight matrix (or ``copies`` equal ones, the experts of a layer), outputs × inputs.

    ``path`` is the module's name below the decoder, as ignore lists of checkpoints spell it. ``unit`` is the width of
    one head under ``Cut.HEADS``, ``least_share`` the fewest intermediate elements of an expert that a rank gets.
    ``linear`` matrices may be quantised; others (norms, embeddings, convolutions) are not, and take
    ``element_bytes`` where that differs from the model's dtype.
    """

    path: str
    outputs: int
    inputs: int
    cut: Cut = Cut.NONE
    copies: int = 1
    unit: int = 1
    linear: bool = True
    element_bytes: int | None = None
    least_share: int = 1

    @property
    def of_experts(self) -> bool:
        """Whether these are routed experts."""
        return self.cut in {Cut.EXPERT_OUTPUTS, Cut.EXPERT_INPUTS}

    def on_rank(self, ranks: Ranks, padding: Padding) -> tuple[int, int, int]:
        """Outputs, inputs and copies that the fullest rank holds; ``padding`` applies to experts."""
        outputs, inputs, copies = self._cut(ranks)
        if self.cut is Cut.EXPERT_OUTPUTS:
            return round_up(outputs, padding.intermediate), round_up(inputs, padding.hidden), copies
        if self.cut is Cut.EXPERT_INPUTS:
            return round_up(outputs, padding.hidden), round_up(inputs, padding.intermediate), copies
        return outputs, inputs, copies

    def _cut(self, ranks: Ranks) -> tuple[int, int, int]:
        outputs, inputs, copies = self.outputs, self.inputs, self.copies
        match self.cut:
            case Cut.NONE:
                pass
            case Cut.OUTPUTS:
                outputs = _share(outputs, ranks.tensor)
            case Cut.INPUTS:
                inputs = _share(inputs, ranks.tensor)
            case Cut.HEADS:
                outputs = max(1, outputs // self.unit // ranks.tensor) * self.unit
            case Cut.VOCABULARY:
                outputs = _share(padded_vocabulary(outputs), ranks.tensor)
            case Cut.EXPERT_OUTPUTS if ranks.expert == 1:
                outputs = self._expert_share(outputs, ranks)
            case Cut.EXPERT_INPUTS if ranks.expert == 1:
                inputs = self._expert_share(inputs, ranks)
            case _:
                copies = _share(copies, ranks.expert)
        return outputs, inputs, copies

    def _expert_share(self, size: int, ranks: Ranks) -> int:
        cutting = ranks.expert_tensor or ranks.tensor
        return max(_share(size, cutting), self.least_share) if cutting > 1 else size


def padded_vocabulary(tokens: int) -> int:
    """Vocabulary as embeddings store it. Source: vLLM 0.32 ``layers/vocab_parallel_embedding.py``."""
    return round_up(tokens, VOCABULARY_PADDING)


def round_up(size: int, multiple: int) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


def _share(size: int, ranks: int) -> int:
    return -(-size // ranks)
