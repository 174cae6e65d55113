"""The report on two releases names what an operator of ours trips over."""

import pytest

from plimsoll.facts.engines import RECORDED
from tools.engine_diff import main, report, sections


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        pytest.param("0.16.0", "0.19.1", "`--swap-space`; instead: nothing: preempted", id="a flag is gone"),
        pytest.param("0.28.0", "0.32.0", "`--max-num-queued-reqs`", id="a flag is new"),
        pytest.param("0.19.1", "0.22.1", "`--gpu-memory-utilization`: 0.9 → 0.92", id="a default moved"),
        pytest.param("0.28.0", "0.32.0", "`--mamba-cache-mode`: gained [], lost ['all']", id="choices moved"),
        pytest.param("0.28.0", "0.32.0", "`vllm:admission_rejections_total` is new: counter", id="a metric is new"),
        pytest.param("0.25.1", "0.28.0", "new: `GPU KV cache size: N tokens, Maximum concurrency", id="a line changed"),
        pytest.param("0.22.1", "0.25.1", "kv_cache_size_tokens", id="a label is new"),
        pytest.param("0.25.1", "0.28.0", "1489.45x of 1073741824 bytes →", id="a layout moved"),
    ],
)
def test_a_report_says_what_moved(old: str, new: str, line: str) -> None:
    assert line in report(old, new)


def test_a_release_and_itself_differ_in_nothing() -> None:
    newest = RECORDED[-1]
    assert {title: lines for title, lines in sections(newest, newest) if lines} == {}


def test_a_release_that_nobody_recorded_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["0.32.0", "0.99.0"]) == 2
    assert "0.10.2, 0.11.0" in capsys.readouterr().err
