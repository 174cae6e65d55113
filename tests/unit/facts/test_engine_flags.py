"""Flags of each release, from the parsers of real engines."""

import pytest

from e2e.fleet.recordings import flag_tables
from plimsoll.facts.engine_flags import find, flag_problem, releases, successor
from plimsoll.facts.engines import NEWEST, RECORDED, EngineVersion


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
        pytest.param("--device-memory-utilization", "0.28.0", "instead: --gpu-memory-utilization", id="a later name"),
        pytest.param("-cc", "0.11.0", "instead: --compilation-config", id="a later short name"),
        pytest.param("gpu_memory_utilization", "0.28.0", "", id="the name it always had"),
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


@pytest.mark.parametrize("version", RECORDED)
def test_what_a_release_takes_and_what_it_does_not_is_known_before_it_says_so(version: str) -> None:
    """Of all names that any recorded parser has, in every spelling."""
    taken = _options(version)
    every = {name for release in RECORDED for name in _options(release)}
    assert {name for name in taken if problem(name, version)} == set()
    assert {name for name in every - taken if not problem(name, version)} <= {"-O"}, "taken before the parser sees it"


def _options(version: str) -> set[str]:
    rows = (row for row in flag_tables()[version] if row["kind"] != "positional")
    return {name for row in rows for name in row["flags"]}


def test_what_the_newest_release_lost_has_a_successor_or_none_is_known() -> None:
    newest = _options(NEWEST)
    every = (row for table in flag_tables().values() for row in table if row["kind"] != "positional")
    gone = {row["dest"] for row in every if not newest & set(row["flags"])}
    assert {dest for dest in gone if successor(dest) is None} == set()


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("device_memory_utilization", "--gpu-memory-utilization"),
        ("-sc", "--speculative-config"),
        ("-tp", "--tensor-parallel-size"),
    ],
)
def test_a_flag_is_written_by_the_name_that_most_releases_know(name: str, spelling: str) -> None:
    flag = find(name)
    assert flag is not None
    assert flag.spelling == spelling
