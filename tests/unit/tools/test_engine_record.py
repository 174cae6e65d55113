"""A recording goes beside those of other releases; the packed flags follow from the tables."""

import json
import shutil
from pathlib import Path

import pytest

from e2e.fleet.recordings import flag_tables
from tools import read_flags
from tools.engine_record import store


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The recordings of this one, to write to."""
    for path in (store.FLAGS, store.PACKED_FLAGS, store.LOGS, store.LAYOUTS):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(store.ROOT / path, tmp_path / path)
    (tmp_path / store.PAGES).mkdir(parents=True)
    return tmp_path


def test_the_packed_flags_are_those_of_the_tables() -> None:
    assert (store.ROOT / store.PACKED_FLAGS).read_text() == read_flags.packed(flag_tables())


def test_a_release_recorded_again_changes_nothing(checkout: Path) -> None:
    store.put_flags(checkout, "0.32.0", flag_tables()["0.32.0"])
    assert (checkout / store.PACKED_FLAGS).read_text() == (store.ROOT / store.PACKED_FLAGS).read_text()


def test_a_new_release_is_the_last_of_the_packed_flags(checkout: Path) -> None:
    store.put_flags(checkout, "0.33.0", [row for row in flag_tables()["0.32.0"] if row["dest"] != "block_size"])
    packed = json.loads((checkout / store.PACKED_FLAGS).read_text())
    seen = {row["dest"]: row["seen"] for row in packed["flags"]}
    assert packed["releases"][-1] == "0.33.0"
    assert seen["max_model_len"][-1] == len(packed["releases"]) - 1
    assert seen["block_size"][-1] == len(packed["releases"]) - 2


def test_rows_of_a_release_replace_its_former_ones(checkout: Path) -> None:
    before = store.read_rows(checkout, store.LAYOUTS)
    row = {"version": "0.28.0", "config": "llama", "flags": {}, "pool_bytes": 1, "error": "none"}
    store.put_layouts(checkout, [row])
    after = store.read_rows(checkout, store.LAYOUTS)
    assert [each for each in after if each["version"] == "0.28.0"] == [row]
    others = [each for each in before if each["version"] != "0.28.0"]
    assert [each for each in after if each != row] == sorted(others, key=lambda each: store.release(each["version"]))


def test_a_case_of_a_log_replaces_that_case_alone(checkout: Path) -> None:
    before = [(row["version"], row["case"]) for row in store.read_rows(checkout, store.LOGS)]
    store.put_logs(checkout, [{"version": "0.32.0", "case": "start", "exit_code": 0, "stdout": [], "stderr": []}])
    after = store.read_rows(checkout, store.LOGS)
    assert sorted((row["version"], row["case"]) for row in after) == sorted(before)
    assert [row["stdout"] for row in after if (row["version"], row["case"]) == ("0.32.0", "start")] == [[]]


def test_the_newest_rows_are_those_of_the_highest_number() -> None:
    rows = [{"version": version} for version in ("0.9.2", "0.10.2", "0.9.10")]
    assert store.newest(rows) == [{"version": "0.10.2"}]


def test_a_page_keeps_the_engines_own_series(checkout: Path) -> None:
    page = (
        "# HELP vllm:a text\n# TYPE vllm:a counter\nvllm:a_total 1.0\nvllm:a_created 2.0\n"
        "# TYPE python_gc gauge\npython_gc 1.0\n"
    )
    store.put_page(checkout, "0.33.0", page)
    assert store.of_ours(page) == "# TYPE vllm:a counter\nvllm:a_total 1.0\n"
    assert (checkout / store.PAGES / "metrics-0.33.0.txt.gz").exists()
