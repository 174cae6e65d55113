"""The fewest and the most replicas of a service, and who says so."""

from typing import Any

import pytest

from plimsoll.core.limits import limits
from plimsoll.core.request import Request, read_request
from plimsoll.core.scale import Limits


def _request(max_gpus: int = 8, **scaling: Any) -> Request:
    spec = {
        "model": {"id": "Qwen/Qwen3-8B"},
        "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": max_gpus},
        "contextTokens": 8192,
        "scaling": scaling,
    }
    return read_request({"metadata": {"name": "svc", "namespace": "llm", "uid": "u"}, "spec": spec})


SHARE = Limits(0, 2, most_is="the budget of L40S", reason="Budget")


@pytest.mark.parametrize(
    ("request_", "gpus", "least", "share", "expect"),
    [
        pytest.param(_request(), 1, None, None, (1, 8, "MaxGPUs"), id="maxGPUs"),
        pytest.param(_request(9), 2, None, None, (1, 4, "MaxGPUs"), id="whole replicas of two GPUs"),
        pytest.param(_request(maxReplicas=3, minReplicas=2), 1, None, None, (2, 3, "MaxReplicas"), id="maxReplicas"),
        pytest.param(_request(maxReplicas=8), 4, None, None, (1, 2, "MaxGPUs"), id="the lower of the two"),
        pytest.param(_request(mode="Fixed", maxReplicas=3), 1, None, None, (1, 8, "MaxGPUs"), id="Auto's alone"),
        pytest.param(_request(minReplicas=2), 1, 0, None, (0, 8, "MaxGPUs"), id="asleep"),
        pytest.param(_request(minReplicas=3), 1, None, SHARE, (2, 2, "Budget"), id="a budget goes before the floor"),
        pytest.param(_request(4, minReplicas=1), 4, 2, SHARE, (1, 1, "MaxGPUs"), id="maxGPUs before a budget"),
    ],
)
def test_limits(
    request_: Request, gpus: int, least: int | None, share: Limits | None, expect: tuple[int, int, str]
) -> None:
    found = limits(request_, gpus, least, share)
    assert (found.least, found.most, found.reason) == expect
