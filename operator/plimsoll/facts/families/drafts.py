"""What the multi-token predictor inside a checkpoint caches.

A module of it is one decoder layer built like the target's: vLLM's ``*_mtp.py`` classes register one attention each.
"""

from typing import Final

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.fields import MAX_LAYERS
from plimsoll.facts.models import CompressedAttention, Layer, RecurrentState, SoftmaxAttention

_MODULE_KEYS: Final = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_modules")
# These predictors read the target's cache and keep none (vLLM 0.32 ``models/gemma4_mtp.py``).
_CACHELESS: Final = frozenset({"gemma_shared"})
# vLLM runs only the first module of these (0.32 ``config/speculative.py``), and it is a window.
_FIRST_ONLY: Final = frozenset({"MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM", "MiMoV2OmniForCausalLM"})
_WINDOWED: Final = frozenset({*_FIRST_ONLY, "Dots3NoteForCausalLM", "Step3p5ForCausalLM"})


def module_count(reading: Reading) -> int:
    """Modules a checkpoint declares; 0 when it names none."""
    return reading.text.optional_int(*_MODULE_KEYS, maximum=MAX_LAYERS) or 0


def draft_layers(reading: Reading, family: str, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """One layer a module, like the target's last full-attention layer (or window, where the class says so).

    Files that circulate often leave the number out: whoever runs such a predictor has at least one module.
    """
    modules = 1 if reading.architecture in _FIRST_ONLY else max(1, module_count(reading))
    if family in _CACHELESS:
        return ()
    windowed = reading.architecture in _WINDOWED
    fitting = [layer for layer in layers if layer.caches and _fits(layer, windowed=windowed)]
    return (fitting[-1],) * modules if fitting else ()


def _fits(layer: Layer, *, windowed: bool) -> bool:
    first = layer.caches[0]
    if isinstance(first, CompressedAttention):
        return first.ratio == 0
    if isinstance(first, RecurrentState):
        return False
    slides = isinstance(first, SoftmaxAttention) and first.window_tokens is not None
    return slides or not isinstance(first, SoftmaxAttention) if windowed else not slides
