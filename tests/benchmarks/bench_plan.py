"""How long a plan takes once facts are loaded: every bundled model, six GPUs, three loads."""

import time
from collections.abc import Iterator
from typing import Any

from plimsoll.api.parse import parse_service
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.facts import catalogue
from tests.benchmarks.report import figure, quantile

GPUS = (
    "NVIDIA-L4", "NVIDIA-L40S", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-B200",
)  # fmt: skip
LOADS: tuple[dict[str, Any], ...] = (
    {},
    {"load": {"concurrency": 24, "promptTokens": 3000, "outputTokens": 400}, "slo": {"ttft": "2s", "itl": "50ms"}},
    {"load": {"requestsPerSecond": 5, "promptTokens": 1500, "outputTokens": 300}, "slo": {"ttft": "1s", "itl": "30ms"}},
)
CONTEXT_TOKENS = 8192


def manifest(name: str, model: str, gpu: str, **more: Any) -> dict[str, Any]:
    """A VLLMService."""
    spec = {
        "model": {"id": model, "textOnly": True},
        "hardware": {"gpu": gpu, "maxGPUs": 64},
        "contextTokens": CONTEXT_TOKENS,
        **more,
    }
    return {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "VLLMService", "metadata": {"name": name}, "spec": spec}


def main() -> None:
    plans, first, later = 0, [], []
    for service, config in _questions():
        seconds = []
        for _ in range(2):
            start = time.perf_counter()
            outcome = plan_service(service, 1, config)
            seconds.append(1e3 * (time.perf_counter() - start))
        plans += isinstance(outcome, Plan)
        first.append(seconds[0])
        later.append(seconds[1])
    more = {"questions": len(later), "feasible": plans}
    figure("plan_p50", quantile(later, 0.5), "ms", **more)
    figure("plan_p99", quantile(later, 0.99), "ms", first_time_p50=round(quantile(first, 0.5), 2), slowest=max(later))
    figure("plan_first_p99", quantile(first, 0.99), "ms")


def _questions() -> Iterator[tuple[Any, ModelConfig]]:
    for model in catalogue.names():
        config = bundled_config(model)
        assert config is not None
        for gpu in GPUS:
            for load in LOADS:
                yield parse_service(manifest("bench", model.split("(")[0], gpu, **load)).spec, config


if __name__ == "__main__":
    main()
