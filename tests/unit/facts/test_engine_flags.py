"""Flags of each release, from the parsers of real engines."""

import pytest

from plimsoll.facts.engine_flags import find, flag_problem, releases
from plimsoll.facts.engines import RECORDED, EngineVersion


def problem(name: str, version: str) -> str:
    return flag_problem(name, EngineVersion.parse(version)) or ""


def test_every_recorded_release_is_there() -> None:
    assert releases() == RECORDED


@pytest.mark.parametrize("name", ["max_num_seqs", "--max-num-seqs", "max-num-seqs"])
def test_any_spelling_is_the_same_flag(name: str) -> None:
    flag = find(name)
    assert flag is not None
    assert flag.spelling == "--max-num-seqs"


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        pytest.param("max_num_seqs", "0.32.0", "", id="known everywhere"),
        pytest.param("max_num_sequences", "0.32.0", "did you mean max_num_seqs?", id="misspelt"),
        pytest.param("xyzzy", "0.32.0", "no such flag", id="nothing like it"),
        pytest.param("swap_space", "0.16.0", "", id="last release that has it"),
        pytest.param("swap_space", "0.32.0", "last seen in 0.16.0", id="removed without successor"),
        pytest.param("rope_scaling", "0.32.0", "instead: --hf-overrides", id="removed with successor"),
        pytest.param("max_seq_len_to_capture", "0.11.0", "--max-cudagraph-capture-size", id="only in the oldest"),
        pytest.param("language_model_only", "0.16.0", "first seen in 0.19.1", id="not yet"),
        pytest.param("language_model_only", "0.18.0", "", id="may have come in between"),
        pytest.param("no_enable_prefix_caching", "0.32.0", "", id="negative form"),
    ],
)
def test_flags_by_release(name: str, version: str, words: str) -> None:
    found = problem(name, version)
    assert words in found
    assert bool(found) is bool(words)


def test_choices_grow_with_releases() -> None:
    flag = find("kv_cache_dtype")
    assert flag is not None
    old, new = (flag.choices_of(EngineVersion.parse(version)) for version in ("0.10.2", "0.32.0"))
    assert "nvfp4" in new
    assert "nvfp4" not in old
    assert "auto" in old
