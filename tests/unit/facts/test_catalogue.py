import pytest

from plimsoll.facts import catalogue
from plimsoll.facts.models import ModelConfigError, read_model

# Its published figures circulate without the pattern of its layers; the reader says so instead of guessing.
_INCOMPLETE = {"nvidia/NVIDIA-Nemotron-3-Nano-4B-FP8"}


def test_every_bundled_model_is_read() -> None:
    for name in catalogue.names():
        entry = catalogue.find(name)
        assert entry is not None
        assert entry.source
        if name in _INCOMPLETE:
            with pytest.raises(ModelConfigError, match="layers_block_type"):
                read_model(entry.config, entry.quant_config)
            continue
        facts = read_model(entry.config, entry.quant_config)
        assert facts.layers
        assert facts.max_model_len > 0


def test_names_match_in_any_case_and_suggest_neighbours() -> None:
    found = catalogue.find(" qwen/qwen3.5-9b ")
    assert found is not None
    assert found.model_id == "Qwen/Qwen3.5-9B"
    assert catalogue.find("Qwen/Qwen3.5-9C") is None
    assert "Qwen/Qwen3.5-9B" in catalogue.nearest("Qwen/Qwen3.5-9C")
    assert catalogue.find("../gpus") is None
