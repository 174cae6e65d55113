"""The one reader of ``e2e/fleet/data``: recordings of real vLLM, and GPU facts."""

from __future__ import annotations

import gzip
import json
from functools import cache
from importlib.resources import files
from typing import Any


def _text(name: str) -> str:
    raw = files("e2e.fleet").joinpath("data", name).read_bytes()
    return (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()


@cache
def layout_rows() -> list[dict[str, Any]]:
    """Planner recordings, one dict an engine configuration (fields: ``data/README.md``)."""
    return [json.loads(line) for line in _text("layouts.jsonl.gz").splitlines()]


@cache
def flag_tables() -> dict[str, list[dict[str, Any]]]:
    """The flags of ``vllm serve``, by version."""
    tables: dict[str, list[dict[str, Any]]] = json.loads(_text("flags.json.gz"))
    return tables


@cache
def refusals() -> dict[str, dict[str, Any]]:
    """Case name → a start that real vLLM 0.32.0 refused: argv, exit code, last lines of both streams."""
    rows = [json.loads(line) for line in _text("refusals-0.32.0.jsonl.gz").splitlines()]
    return {row["case"]: row for row in rows}


@cache
def metrics_page() -> str:
    """A real 0.32 ``/metrics`` page."""
    return _text("metrics-0.32.txt.gz")


@cache
def gpu_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(_text("gpus.json"))
    return rows


@cache
def reserve_rows() -> list[dict[str, Any]]:
    """Memory classes, largest first: what a GPU loses to everything but weights and KV cache."""
    rows: list[dict[str, Any]] = json.loads(_text("reserve.json"))
    return rows
