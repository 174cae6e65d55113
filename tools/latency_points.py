"""Measured latency points as what ``plimsoll.core.latency`` takes: facts, flags, load; and why some cannot be used."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from plimsoll.core.kv import EngineOptions, KVLayout, plan_layout
from plimsoll.core.latency import Load, StepTimes, running_limit, step_times
from plimsoll.core.memory import MemoryFlags, budget
from plimsoll.facts import catalogue, gpus
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.models import ModelFacts, read_model

Row = Mapping[str, Any]


def _modelopt(algorithm: str) -> dict[str, object]:
    """What NVIDIA's tool writes beside a checkpoint that it quantised."""
    return {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": algorithm, "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]},
    }


# The points name a base model and a width of weights; these are the checkpoints of that width. Where the catalogue has
# no file of that very checkpoint, one of equal shape stands in (GLM-5.1 for GLM-5, Kimi-K2.6 for K2.5), or the base
# model with the quantisation file its publisher writes.
CHECKPOINTS: Final[Mapping[tuple[str, str], tuple[str, Mapping[str, object] | None]]] = {
    ("meta-llama/Llama-3.1-70B", "fp8"): ("nvidia/Llama-3.1-70B-Instruct-FP8", None),
    ("meta-llama/Llama-3.1-70B", "fp4"): ("nvidia/Llama-3.1-70B-Instruct-FP8", _modelopt("NVFP4")),
    ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8"): ("meta-llama/Llama-3.1-8B-Instruct", _modelopt("FP8")),
    ("moonshotai/Kimi-K2.5", "fp4"): ("nvidia/Kimi-K2.6-NVFP4", None),
    ("moonshotai/Kimi-K2.5", "int4"): ("moonshotai/Kimi-K2.5", None),
    ("openai/gpt-oss-120b", "fp4"): ("openai/gpt-oss-120b", None),
    ("Qwen/Qwen3-32B", "bf16"): ("Qwen/Qwen3-32B", None),
    ("Qwen/Qwen3-32B", "fp8"): ("Qwen/Qwen3-32B", _modelopt("FP8")),
    ("Qwen/Qwen2.5-32B", "bf16"): ("Qwen/Qwen2.5-32B-Instruct", None),
    ("Qwen/Qwen3-235B-A22B-FP8", "fp8"): ("Qwen/Qwen3-235B-A22B-FP8", None),
    ("Qwen/Qwen3.5-397B-A17B", "bf16"): ("Qwen/Qwen3.5-397B-A17B", None),
    ("zai-org/GLM-5-FP8", "fp8"): ("zai-org/GLM-5.1-FP8", None),
}
GPUS: Final = {
    "A100-80GB": "a100-80-sxm",
    "H100-SXM5-80GB": "h100-sxm",
    "H200-SXM5-141GB": "h200-sxm",
    "B200-SXM-180GB": "b200",
    "B300-SXM-288GB": "b300",
}
UNSTATED_GPU: Final = "unstated (8 GPUs)"
STAND_IN: Final = "h200-sxm"
SUSPECT_MODELS: Final = frozenset({"nvidia/Llama-3.1-8B-Instruct-FP8", "Qwen/Qwen3-235B-A22B-FP8"})
UNDATED_VERSION: Final = "0.11.0"
"""Points without a version are of September to November 2025."""
NIGHTLY_VERSION: Final = "0.16.0"


@dataclass(frozen=True)
class Point:
    """One measured point: names, the load, what was measured (seconds), and step times that still want coefficients."""

    model: str
    weights: str
    gpu: str
    work_in_progress: bool
    load: Load
    limit: float
    times: StepTimes
    tpot_seconds: float
    ttft_seconds: float

    @property
    def stated(self) -> bool:
        """Whether the GPU is known; otherwise 141 GB parts stand in, because the pool holds what theirs would."""
        return self.gpu != UNSTATED_GPU

    @property
    def trusted(self) -> bool:
        """Whether the point may enter a fit: neither its publisher nor the collection's notes doubt it."""
        return self.stated and not self.work_in_progress and self.model not in SUSPECT_MODELS

    @property
    def group(self) -> tuple[str, str, str]:
        """The model, weight format and GPU that one learned correction belongs to."""
        return self.model, self.weights, self.gpu


def read_points(path: Path) -> tuple[list[Point], list[str]]:
    """Points of vLLM, and for each row of it that cannot be used, why."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    points, refused = [], []
    for row in map(json.loads, text.splitlines()):
        if not row["engine"].lower().startswith("vllm"):
            continue
        found = _point(row)
        if isinstance(found, Point):
            points.append(found)
        else:
            refused.append(found)
    return points, refused


def _point(row: Row) -> Point | str:
    name = f"{row['model']} {row['weights']} on {row['gpu']}"
    if row.get("isl") is None:
        return f"{name}: no prompt length, output length or concurrency"
    checkpoint = CHECKPOINTS.get((row["model"], row["weights"]))
    gpu = gpus.find(GPUS.get(row["gpu"], STAND_IN if row["gpu"] == UNSTATED_GPU else row["gpu"]))
    if checkpoint is None or gpu is None:
        return f"{name}: {'no configuration' if checkpoint is None else 'no figures of that GPU'}"
    load = Load(row["isl"], row["osl"], row["concurrency"])
    engine = _engine(row["model"], row["weights"], gpu.id, _version(row), *_parallel(row))
    if engine.blocks < 2:
        return f"{name} at TP {row['tp']}: the weights leave no room for a cache, so this is not what was measured"
    return Point(
        model=row["model"],
        weights=row["weights"],
        gpu=row["gpu"],
        work_in_progress="work in progress" in row["origin"],
        load=load,
        limit=running_limit(engine.layout, engine.blocks, load),
        times=engine.times,
        tpot_seconds=row["tpot_ms"] / 1e3,
        ttft_seconds=row["ttft_ms"] / 1e3,
    )


@cache
def _facts(model: str, weights: str) -> ModelFacts:
    name, quantisation = CHECKPOINTS[model, weights]
    entry = catalogue.find(name)
    if entry is None:
        raise LookupError(f"{name} is not in the bundled catalogue")
    return read_model(entry.config, quantisation or entry.quant_config)


def _version(row: Row) -> str:
    written = row.get("engine_version") or UNDATED_VERSION
    return NIGHTLY_VERSION if written.startswith("nightly") else written


def _parallel(row: Row) -> tuple[int, int, bool]:
    return row["tp"], row["dp"], (row.get("ep") or 1) > 1


@dataclass(frozen=True)
class _Engine:
    layout: KVLayout
    blocks: int
    times: StepTimes


@cache
def _engine(
    model: str, weights: str, gpu_id: str, version: str, tensor_parallel: int, data_parallel: int, expert_parallel: bool
) -> _Engine:
    facts, gpu = _facts(model, weights), gpus.find(gpu_id)
    if gpu is None:
        raise LookupError(f"{gpu_id} is not a known GPU")
    options = EngineOptions(device=gpu, version=EngineVersion.parse(version), tensor_parallel=tensor_parallel)
    flags = MemoryFlags(expert_parallel=expert_parallel, data_parallel=data_parallel)
    layout = plan_layout(facts, options)
    blocks = int(budget(facts, options, flags).available_kv_bytes.mid) // layout.bytes_per_block
    times = step_times(facts, options, flags)
    if times is None:
        raise LookupError(f"the speeds of {gpu.name} are not known")
    return _Engine(layout, blocks, times)
