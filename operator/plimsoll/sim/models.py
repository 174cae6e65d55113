"""Named engine models: pool, limits and step times of real engines, fitted by ``tools/fit_engine.py``."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from plimsoll.sim.blocks import BlockPool
from plimsoll.sim.engine import Engine, EngineLimits
from plimsoll.sim.steps import FittedSteps, StepCost


@dataclass(frozen=True)
class EngineModel:
    """Everything a simulated engine is made of."""

    pool: BlockPool
    limits: EngineLimits
    cost: StepCost
    gpus: int = 1

    def engine(self) -> Engine:
        """A new, idle engine."""
        return Engine(self.pool, self.limits, self.cost)


@cache
def model_names() -> tuple[str, ...]:
    """Names that ``engine_model`` knows."""
    return tuple(_table())


def engine_model(name: str) -> EngineModel:
    """A model by name; KeyError when there is none."""
    row = _table()[name]
    return EngineModel(
        BlockPool(**{**row["pool"], "capped_groups": tuple(row["pool"]["capped_groups"])}),
        EngineLimits(**row["limits"]),
        FittedSteps(**row["steps"]),
        row.get("gpus", 1),
    )


@cache
def _table() -> dict[str, dict[str, Any]]:
    text = resources.files("plimsoll.sim").joinpath("engines.json").read_text()
    table: dict[str, dict[str, Any]] = json.loads(text)
    return table
