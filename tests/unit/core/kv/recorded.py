"""The recorded tables of ``tests/data/kv``, row by row."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from plimsoll.facts import catalogue
from plimsoll.facts.models import ModelFacts, read_model

DATA = Path(__file__).parents[3] / "data" / "kv"
GIB = 1 << 30


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def bundled_facts(model_id: str) -> ModelFacts:
    entry = catalogue.find(model_id)
    assert entry is not None, f"{model_id} is not bundled"
    return read_model(entry.config, entry.quant_config)


@cache
def engine_models() -> dict[str, dict[str, Any]]:
    models: dict[str, dict[str, Any]] = rows("engine-models.json.gz")[0]
    return models


def named(rows_of_table: list[dict[str, Any]], *keys: str) -> list[Any]:
    """The rows as parameters whose ids read like ``org/model-H100-2-fp8``."""
    return [pytest.param(row, id="-".join(str(row.get(key)) for key in keys)) for row in rows_of_table]
