"""A tick of the sampler: queries sent, and CPU seconds from asking to a word about every service, at 1 and 1,000.

Prometheus is pretended (its answers are in memory, as the adapter would hand them over), so this is the operator's own
share: reading, joining, judging. Two pods a service.
"""

import asyncio
import time
from typing import Any

from plimsoll.adapters.ports import PODS, SERVICES
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.observer import Observer
from plimsoll.control.pools import Pools, Speeds
from plimsoll.control.sampler import Asking, Sampler
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core import rollout
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.request import read_request
from plimsoll.core.sampling import Answer, Series
from plimsoll.core.signals import Signal
from tests.benchmarks.report import figure

PODS_EACH = 2
SPEC: dict[str, Any] = {
    "model": {"id": "Qwen/Qwen3-8B"},
    "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 8},
    "contextTokens": 16384,
    "slo": {"ttft": "2s", "itl": "50ms"},
}


class Pretended:
    """Answers every query for every pod, and counts them."""

    def __init__(self, pods: list[str]) -> None:
        self.asked = 0
        self._pods = pods
        self._answers: dict[str, Answer] = {}

    async def query(self, text: str) -> Answer:
        self.asked += 1
        if text not in self._answers:
            tags = [_tag(signal) for signal in Signal if f'"{signal.name}"' in text] or [{}]
            labels = [{"namespace": "llm", "pod": pod, "engine": "0", **tag} for pod in self._pods for tag in tags]
            found = [Series(each, 0.5) for each in labels]
            self._answers[text] = Answer(tuple(found))
        return self._answers[text]


def _tag(signal: Signal) -> dict[str, str]:
    percentile = {"percentile": "95"} if signal in (Signal.TTFT, Signal.ITL, Signal.TPOT) else {}
    return {"signal": signal.name, **percentile}


def _pod(service: str, name: str) -> dict[str, Any]:
    labels = {names.LABEL_SERVICE: service, names.LABEL_TRACK: names.TRACK_MAIN}
    return {
        "metadata": {"name": name, "namespace": "llm", "uid": name, "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": []},
    }


def _world(services: int) -> tuple[Sampler, Pretended, list[Key]]:
    cache, queue = Cache(), WorkQueue[Key](time.monotonic)
    keys = [Key("llm", f"svc-{index}") for index in range(services)]
    pods = []
    for key in keys:
        cache.put(SERVICES, {"metadata": {"name": key.name, "namespace": "llm"}, "spec": SPEC})
        for index in range(PODS_EACH):
            pods.append(f"{key.name}-{index}")
            cache.put(PODS, _pod(key.name, pods[-1]))
    source = Pretended(pods)
    return Sampler(source, cache, queue, time.monotonic, Asking()), source, keys


async def _measure(services: int) -> tuple[int, float, float]:
    """Queries of a tick, seconds of the tick, seconds to say of every service what limits it."""
    sampler, source, keys = _world(services)
    request = read_request({"metadata": {"name": "svc", "namespace": "llm", "uid": "u"}, "spec": SPEC})
    plan = plan_service(request.spec, 1, bundled_config("Qwen/Qwen3-8B"))
    assert isinstance(plan, Plan)
    revision = rollout.render(request, plan, 1)
    observer = Observer(sampler, Pools([]), Speeds([]))
    await sampler.tick(source)
    source.asked, began = 0, time.process_time()
    await sampler.tick(source)
    ticked = time.process_time()
    for key in keys:
        observer.observe(key, request, revision)
    return source.asked, ticked - began, time.process_time() - ticked


def main() -> None:
    """Print the figures."""
    for services in (1, 1000):
        asked, tick, observe = asyncio.run(_measure(services))
        figure(f"sampler_queries_{services}_services", asked, "queries/tick")
        figure(f"sampler_tick_{services}_services", tick, "s")
        figure(f"sampler_observe_{services}_services", observe, "s")
