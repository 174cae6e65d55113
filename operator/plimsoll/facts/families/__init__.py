"""How each family of checkpoints spells its caches, and which architecture belongs to which family.

A family is one module with ``read_layers(reading) -> tuple[Layer, ...]``; ``architectures.json`` assigns vLLM's
architecture names to families. An architecture that no family claims is ``UnknownArchitecture``.
"""

from plimsoll.facts.families.drafts import draft_layers, module_count
from plimsoll.facts.families.reading import Reading, as_object, decoder_part
from plimsoll.facts.families.registry import family_of, model_type_of, resolve_architecture
from plimsoll.facts.fields import Fields
from plimsoll.facts.limits import max_model_len, original_max_positions, writes_max_model_len
from plimsoll.facts.models import Dimensions, JSONObject, ModelFacts
from plimsoll.facts.quantisation import read_quantisation


def read(config: JSONObject, quant_config: JSONObject | None, weights_bytes: int | None) -> ModelFacts:
    """The whole of ``models.read_model``."""
    config = as_object(config, "config.json")
    reading = open_config(config)
    family = family_of(reading)
    layers = family.read_layers(reading)
    dtype = model_dtype(reading)
    return ModelFacts(
        architecture=reading.architecture,
        model_type=reading.text.model_type or reading.top.model_type,
        family=family.name,
        dims=_dimensions(reading, family.query_heads(reading), len(layers)),
        layers=layers,
        head_size=family.head_size(reading),
        dtype=dtype,
        max_model_len=max_model_len(reading.top, reading.text),
        limit_is_assumed=not writes_max_model_len(reading.text),
        original_max_positions=original_max_positions(reading.top, reading.text),
        quantisation=read_quantisation(config, reading.text.values, quant_config),
        draft_layers=draft_layers(reading, family.name, layers),
        draft_modules=module_count(reading),
        state_dtype=family.state_dtype(reading),
        multimodal=reading.wrapped,
        prefix_lm=family.prefix_lm(reading),
        weights_bytes=weights_bytes,
        assumed=tuple(dict.fromkeys((*reading.top.assumed, *reading.text.assumed))),
        raw=reading.text.values,
        config=config,
    )


def open_config(config: JSONObject) -> Reading:
    """Find the decoder's part and the architecture vLLM would build."""
    outer = Fields(config)
    top = Fields(config, model_type=outer.text("model_type") or "")
    text = decoder_part(top)
    architecture = resolve_architecture(top, text)
    if not text.model_type:
        text = Fields(text.values, text.path, model_type_of(architecture))
    return Reading(architecture, top, text)


def model_dtype(reading: Reading) -> str:
    """Dtype the checkpoint names, first of file, decoder, vision part; float32 when none does.

    Source: vLLM 0.32 ``model_arch_config_convertor.py get_torch_dtype``.
    """
    for part in (reading.top, reading.text, reading.top.child("vision_config"), reading.top.child("encoder_config")):
        if part is None:
            continue
        for key in ("dtype", "torch_dtype"):
            written = part.text(key)
            if written is not None:
                return written.removeprefix("torch.")
    return "float32"


def _dimensions(reading: Reading, query_heads: int, layers: int) -> Dimensions:
    text = reading.text
    return Dimensions(
        hidden_size=reading.hidden_size,
        intermediate_size=_widest_mlp(text),
        vocab_size=text.optional_int("vocab_size") or reading.top.optional_int("vocab_size") or 0,
        layers=layers,
        query_heads=query_heads,
        kv_heads=reading.kv_heads if query_heads else 0,
        head_dim=reading.head_dim if query_heads else 0,
        experts=reading.experts(),
        experts_per_token=reading.experts_per_token(),
        expert_intermediate_size=text.optional_int("moe_intermediate_size") or 0,
        tie_word_embeddings=_ties(reading),
    )


def _widest_mlp(text: Fields) -> int:
    """Width of the dense MLPs, the widest where the file names one per layer (Gemma 3n); 0 where it names none."""
    if isinstance(text.values.get("intermediate_size"), list):
        return max(text.integers("intermediate_size") or (0,))
    return text.optional_int("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim") or 0


def _ties(reading: Reading) -> bool:
    """Whether input and output embeddings are one matrix: the wrapper's word wins over the decoder's."""
    if reading.top.has("tie_word_embeddings"):
        return reading.top.flag("tie_word_embeddings")
    return reading.text.flag("tie_word_embeddings")
