"""What the truth layer reads is on the recorded page of every release (the installed one: test_conformance.py)."""

import gzip
from pathlib import Path
from typing import Final

import pytest

from e2e.engine.tally import Tally
from tests.unit.facts.pages import READ, lacking

PAGES: Final = Path(__file__).parents[3] / "tests" / "data" / "engines"
RELEASES: Final = sorted(
    (path.name.removeprefix("metrics-").removesuffix(".txt.gz") for path in PAGES.glob("*.gz")),
    key=lambda name: tuple(map(int, name.split("."))),
)


@pytest.mark.parametrize("version", RELEASES)
def test_a_recorded_page_has_what_is_read(version: str, tally: Tally) -> None:
    page = gzip.decompress((PAGES / f"metrics-{version}.txt.gz").read_bytes()).decode()
    assert list(lacking(page, version)) == []
    tally.count("metrics", version, len(READ))
