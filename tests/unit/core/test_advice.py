"""What would help an engine that failed: from its own figures, where it gave enough of them."""

import re
from typing import Any

import pytest

from plimsoll.api import engine_reasons, reasons
from plimsoll.api.reason import Reason
from plimsoll.core.advice import changes
from plimsoll.core.causes import Cause
from plimsoll.core.logs import Failure

GIB = 1024**3
ENDING = "an engine that is still ending, or another process; when it is gone the same start works"
SMALL, BUSY, MEMORY = reasons.KV_CACHE_TOO_SMALL, reasons.NOT_ENOUGH_FREE_MEMORY, engine_reasons.GPU_OUT_OF_MEMORY
MISSING = {"needed_bytes": 9 * GIB, "available_bytes": 7 * GIB}
TRIED = {"tried_bytes": 6 * GIB, "free_bytes": 2 * GIB}


def told(reason: Reason, figures: dict[str, Any], total: int | None, share: float | None) -> list[str]:
    """All but the reason's own advice, which is always the last."""
    *found, last = changes(Failure(Cause(reason, "human", re.compile("x")), "said", figures), total, share)
    assert last == reason.runbook
    return found


@pytest.mark.parametrize(
    ("reason", "figures", "total", "share", "says"),
    [
        pytest.param(
            SMALL,
            {"estimated_max_model_len": 8000},
            None,
            None,
            ["contextTokens (--max-model-len): at most 8000, by the engine's own figure"],
            id="the engine says what fits",
        ),
        pytest.param(
            SMALL,
            MISSING,
            100 * GIB,
            0.9,
            ["--gpu-memory-utilization: 0.9 -> 0.93 gives the 2.00 GiB that are missing"],
            id="a little more of the GPU",
        ),
        pytest.param(
            SMALL,
            MISSING,
            51 * GIB,
            0.9,
            ["--gpu-memory-utilization: 0.9 -> 0.95 gives the 2.00 GiB that are missing"],
            id="as much as may be",
        ),
        pytest.param(SMALL, MISSING, 80 * GIB, 0.92, [], id="more than may be"),
        pytest.param(SMALL, MISSING, None, 0.9, [], id="how large the GPU is is not known"),
        pytest.param(SMALL, MISSING, 80 * GIB, None, [], id="how much of it is used is not known"),
        pytest.param(SMALL, {"needed_bytes": GIB, "available_bytes": GIB}, 80 * GIB, 0.5, [], id="nothing is missing"),
        pytest.param(SMALL, {"estimated_max_model_len": None}, 80 * GIB, 0.5, [], id="nothing is known"),
        pytest.param(
            SMALL,
            {"needed_bytes": 2 * GIB},
            80 * GIB,
            0.5,
            ["--gpu-memory-utilization: 0.5 -> 0.54 gives the 2.00 GiB that are missing"],
            id="nothing was there",
        ),
        pytest.param(
            MEMORY,
            TRIED,
            80 * GIB,
            0.9,
            ["--gpu-memory-utilization: 0.9 -> 0.83 leaves room for the 6.00 GiB it tried"],
            id="room for what it tried",
        ),
        pytest.param(
            MEMORY,
            {"tried_bytes": GIB, "free_bytes": 2 * GIB},
            80 * GIB,
            0.9,
            ["--gpu-memory-utilization: 0.9 -> 0.88 leaves room for the 1.00 GiB it tried"],
            id="in pieces too small",
        ),
        pytest.param(MEMORY, TRIED, 8 * GIB, 0.5, [], id="there is no room at all"),
        pytest.param(MEMORY, TRIED, None, 0.9, [], id="how large the GPU is, again, is not known"),
        pytest.param(MEMORY, TRIED, 80 * GIB, None, [], id="how much of it is used, again, is not known"),
        pytest.param(MEMORY, {"tried_bytes": GIB}, 80 * GIB, 0.9, [], id="what was free is not known"),
        pytest.param(MEMORY, {"free_bytes": GIB}, 80 * GIB, 0.9, [], id="what it tried is not known"),
        pytest.param(
            BUSY,
            {"free_bytes": 20 * GIB},
            80 * GIB,
            None,
            [
                f"something else holds 60.00 GiB of the GPU: {ENDING}",
                "to share the GPU on purpose: --gpu-memory-utilization at most 0.24",
            ],
            id="somebody else is there",
        ),
        pytest.param(
            BUSY,
            {"free_bytes": 0},
            80 * GIB,
            None,
            [f"something else holds 80.00 GiB of the GPU: {ENDING}"],
            id="there is nothing to share",
        ),
        pytest.param(BUSY, {"free_bytes": GIB}, None, None, [], id="how large it is"),
        pytest.param(BUSY, {}, 80 * GIB, None, [], id="what is free"),
        pytest.param(
            reasons.MAX_NUM_SEQS_ABOVE_STATE_BLOCKS,
            {"max_num_seqs": 256, "state_blocks": 100},
            None,
            None,
            ["--max-num-seqs: 256 -> 100"],
            id="no more requests than states",
        ),
        pytest.param(
            reasons.MAX_NUM_SEQS_ABOVE_STATE_BLOCKS, {"max_num_seqs": 256}, None, None, [], id="how many states"
        ),
        pytest.param(reasons.BAD_FLAG, MISSING, 80 * GIB, 0.9, [], id="only its own advice"),
    ],
)
def test_what_would_help(
    reason: Reason, figures: dict[str, Any], total: int | None, share: float | None, says: list[str]
) -> None:
    assert told(reason, figures, total, share) == says
