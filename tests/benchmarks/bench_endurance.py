"""A virtual day of churn in the rig: does what the operator keeps stay the same size?

    HOURS=24 python -m tests.benchmarks endurance

Services come, change and go under a dozen names. What is counted is everything reachable from the operator's own parts,
its tasks, and the series of its metrics; the world around it is left out. The slope is that of the last two thirds.
"""

import asyncio
import gc
import os
import sys
import time
import types
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from statistics import linear_regression
from typing import Final

from plimsoll.adapters.ports import SERVICES
from plimsoll.metrics import REGISTRY
from tests.benchmarks.report import figure
from tests.faults.world.connection import Connection
from tests.faults.world.process import Process
from tests.faults.world.prometheus import Prometheus
from tests.faults.world.virtual_time import Agenda, ProcessLoop
from tests.faults.world.world import World, service

HOURS: Final = float(os.environ.get("HOURS", "24"))
SERVICES_AT_MOST: Final = 12
EDIT_SECONDS: Final = 120.0
SAMPLES: Final = 12
CONTEXTS: Final = (4096, 8192, 16384)
KIB: Final = 1024
_OUTSIDE: Final = (Connection, Prometheus, Agenda, ProcessLoop, type, types.ModuleType, types.FunctionType)
"""Not what the operator keeps: the world, and what there is once in a process anyway."""


@dataclass(frozen=True)
class Sample:
    """What the operator holds at one moment."""

    hours: float
    kib: float
    tasks: int
    series: int


def main() -> None:
    """Print the slopes, and how fast a day went by."""
    began = time.perf_counter()
    with World(nodes=(("NVIDIA-L40S", 8),) * 4) as world:
        process = world.start_operator("first")
        world.until(lambda: process.leads, what="the operator leads")
        samples = _churned(world, process)
    settled = samples[len(samples) // 3 :]
    for name, unit in (("kib", "KiB/h"), ("tasks", "1/h"), ("series", "1/h")):
        values = [float(getattr(each, name)) for each in settled]
        slope = linear_regression([each.hours for each in settled], values).slope
        figure(f"endurance_{name}_slope", slope, unit, first=values[0], last=values[-1], hours=HOURS)
    speed = HOURS * 60 / (time.perf_counter() - began)
    figure("endurance_speed", speed, "virtual minutes/s", services=SERVICES_AT_MOST)


def _churned(world: World, process: Process) -> list[Sample]:
    random, samples = Random(1), []
    for number in range(SAMPLES):
        for _ in range(max(1, round(HOURS * 3600 / SAMPLES / EDIT_SECONDS))):
            _edit(world, random)
            world.run(EDIT_SECONDS)
        process.connection.calls.clear()
        process.connection.done.clear()
        samples.append(_sample(process, (number + 1) * HOURS / SAMPLES))
    return samples


def _edit(world: World, random: Random) -> None:
    """One service comes, changes or goes."""
    name = f"churn-{random.randrange(SERVICES_AT_MOST)}"
    if random.random() < 0.25:
        if world.find(SERVICES, name):
            world.delete(SERVICES, name)
        return
    scaling = {"minReplicas": random.choice((1, 2))}
    world.apply(service(name, contextTokens=random.choice(CONTEXTS), scaling=scaling))


def _sample(process: Process, hours: float) -> Sample:
    gc.collect()
    tasks = len(asyncio.all_tasks(process.loop))
    series = sum(len(metric.samples) for metric in REGISTRY.collect())
    return Sample(hours, _reachable_bytes([process.operator]) / KIB, tasks, series)


def _reachable_bytes(roots: Iterable[object]) -> int:
    """Bytes of all objects that can be reached, those outside left out."""
    seen: set[int] = set()
    waiting, total = list(roots), 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, _OUTSIDE):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        waiting.extend(gc.get_referents(found))
    return total


if __name__ == "__main__":
    main()
