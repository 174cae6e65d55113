"""The names, types and labels that the queries ask for are on the recorded page of every release."""

import gzip
from pathlib import Path

import pytest

from plimsoll.facts.engine_metrics import METRICS
from plimsoll.facts.engines import RECORDED
from tests.unit.facts.pages import READ, lacking

PAGES = Path(__file__).parents[2] / "data" / "engines"
WITHOUT_A_PAGE = {"0.10.2"}


@pytest.mark.parametrize("version", [version for version in RECORDED if version not in WITHOUT_A_PAGE])
def test_a_releases_page_has_what_is_read(version: str) -> None:
    page = gzip.decompress((PAGES / f"metrics-{version}.txt.gz").read_bytes()).decode()
    assert list(lacking(page, version)) == []


def test_every_metric_we_have_a_name_for_is_looked_for() -> None:
    assert {read.metric.names for read in READ} == {metric.names for metric in METRICS.values()}


def test_a_page_that_lacks_something_is_seen() -> None:
    page = '# TYPE vllm:num_requests_running counter\nvllm:num_requests_running_total{model_name="x"} 1\n'
    assert "vllm:kv_cache_usage_perc: none of vllm:kv_cache_usage_perc, vllm:gpu_cache_usage_perc is there" in lacking(
        page, "0.32.0"
    )
