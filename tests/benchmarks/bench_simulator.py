"""Requests simulated a second on one core, from 1 to 64 replicas that are each as busy: the cost should not grow."""

import time
from typing import Final

from plimsoll.core.scale import Limits
from plimsoll.sim.fleet import FleetSettings
from plimsoll.sim.models import engine_model
from plimsoll.sim.traces import made, steady
from plimsoll.sim.trial import Trial
from tests.benchmarks.regimes import CHAT, SMALL
from tests.benchmarks.report import figure

REQUESTS: Final = 50_000
RATE_EACH: Final = 2.0
SIZES: Final = (1, 4, 16, 64)


def main() -> None:
    """Print a figure for each size of the fleet."""
    for replicas in SIZES:
        rate = RATE_EACH * replicas
        requests = made(steady(rate), rate, REQUESTS / rate, 1000, 200, seed=1)
        trial = Trial(requests, engine_model(SMALL), CHAT, Limits(1, 64), FleetSettings())
        began = time.process_time()
        trial.run(f"static:{replicas}")
        seconds = time.process_time() - began
        figure(f"simulator_{replicas}_replicas", len(requests) / seconds, "requests/s", requests=len(requests))


if __name__ == "__main__":
    main()
