"""Rows of vLLM's own planner: asked for in the engine's Python, one process for each pretended GPU; kept in a table."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Final

from e2e.controlplane import tether
from e2e.engine.install import Engine
from plimsoll.facts import catalogue, gpus
from tools.oracle.cases import AVAILABLE_BYTES, GIB, LENGTHS, Case

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = ROOT / "tests" / "data" / "kv" / "oracle.jsonl.gz"
PLANNER: Final = ROOT / "e2e" / "engine" / "inside" / "planner.py"
# What vLLM wants to have of a configuration and the catalogue leaves out, because no cache depends on it.
FILLERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "deepseek-ai/DeepSeek-V2-Lite": {"n_group": 1, "topk_group": 1},
    "deepseek-ai/DeepSeek-V4-Flash": {
        "rms_norm_eps": 1e-6, "norm_topk_prob": True, "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc",
    },
    "tiiuae/Falcon-H1-1.5B-Instruct": {"max_position_embeddings": 131_072},
}  # fmt: skip
_NEEDED: Final = re.compile(r"([\d.]+) GiB KV cache is needed")
_FITS: Final = re.compile(r"estimated maximum model length is (\d+)")
_LONGEST_REASON: Final = 300

Row = dict[str, Any]
Log = Callable[[str], None]


class OracleError(RuntimeError):
    """The planner's process ended before it had answered."""


def plan(engine: Engine, triton: Path, cases: Sequence[Case], log: Log) -> Iterator[tuple[Case, Row]]:
    """Each case with its row, by device; within a device in the order of `cases`."""
    ordered = sorted(cases, key=lambda case: case.device)
    for device, found in groupby(ordered, key=lambda case: case.device):
        yield from _on(device, list(found), engine, triton, log)


def _on(device: str, cases: Sequence[Case], engine: Engine, triton: Path, log: Log) -> Iterator[tuple[Case, Row]]:
    log(f"pretending to have {device}: {len(cases)} to plan")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
        models = Path(folder)
        asked = "".join(json.dumps(_request(case, models)) + "\n" for case in cases)
        process = _started(device, asked, models, engine, triton, said)
        answers = process.stdout or io.StringIO()
        try:
            for case in cases:
                line = answers.readline()
                if not line:
                    said.seek(0)
                    raise OracleError(f"vLLM's planner ended before {case}:\n{said.read()[-2000:]}")
                yield case, _row(case, json.loads(line), models)
        finally:
            process.kill()
            process.wait()
            answers.close()


def _started(
    device: str, asked: str, folder: Path, engine: Engine, triton: Path, said: IO[str]
) -> subprocess.Popen[str]:
    gpu = _pretended(device)
    told = {"name": device, "capability": gpu.capability, "memory_bytes": gpu.torch_total_bytes, "triton": str(triton)}
    (folder / "cases.jsonl").write_text(asked)
    env = {**os.environ, **engine.environment(), "VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    with (folder / "cases.jsonl").open() as stdin:
        command = tether.command([str(engine.python), str(PLANNER), json.dumps(told)])
        return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=said, env=env, text=True)


def _pretended(device: str) -> gpus.GPU:
    gpu = gpus.find(device)
    if gpu is None or gpu.capability is None:
        raise OracleError(f"device: {device!r} is no CUDA GPU that facts/gpus.json knows")
    return gpu


def _request(case: Case, models: Path) -> Row:
    return {
        "model_folder": str(_written(case.model, models)),
        "tp": case.tp,
        "kv_cache_dtype": case.kv_cache_dtype,
        "extra_args": dict(case.extra_args),
        "available_bytes": list(AVAILABLE_BYTES),
        "lengths": list(LENGTHS),
    }


def _written(model: str, models: Path) -> Path:
    """The model's folder with its configuration: of the catalogue, or of a config.json by path."""
    config, quant_config = configuration(model)
    folder = models / model.replace("/", "--").replace(".", "_").lstrip("-")
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **FILLERS.get(model, {})}))
    if quant_config:
        (folder / "hf_quant_config.json").write_text(json.dumps(dict(quant_config)))
    return folder


def configuration(model: str) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """The model's configuration and the one of its quantisation, of a catalogue name or the path of a config.json."""
    if model.endswith(".json"):
        return json.loads(Path(model).read_text(encoding="utf-8")), None
    entry = catalogue.find(model)
    if entry is None:
        raise OracleError(f"model: {model!r} is neither in the catalogue nor the path of a config.json")
    return entry.config, entry.quant_config


def _row(case: Case, found: Row, models: Path) -> Row:
    """As in the table: the question, then the answer; text of refusals as figures."""
    gpu = _pretended(case.device)
    asked = {
        "model": case.model,
        "device": case.device,
        "compute_capability": ".".join(map(str, gpu.capability or ())),
        "device_gib": round(gpu.torch_total_bytes / GIB, 1),
        "tp": case.tp,
        "kv_cache_dtype": case.kv_cache_dtype,
        "extra_args": dict(case.extra_args),
    }
    results = [_result(result) for result in found.pop("results")]
    if "rejected" in found:
        found["rejected"] = found["rejected"].replace(str(models), "MODELS")[:_LONGEST_REASON]
    return {**asked, **found, "config": f"{case.model.replace('/', '--')}.json", "results": results}


def _result(result: Row) -> Row:
    found = {**result, "mem_gib": result["available_bytes_per_gpu"] / GIB}
    error = found.pop("error", None)
    if error is None:
        return found
    needed, fits = _NEEDED.search(error), _FITS.search(error)
    return {
        **found,
        "needed_gib": float(needed[1]) if needed else None,
        "estimated_max_model_len": int(fits[1]) if fits else None,
    }


def read() -> list[Row]:
    """The committed table; empty where there is none."""
    if not TABLE.exists():
        return []
    with gzip.open(TABLE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write(rows: Iterable[Row]) -> None:
    """The same rows give the same file."""
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    TABLE.write_bytes(gzip.compress(text.encode(), mtime=0))


def case_of(row: Row) -> Case:
    """The question that a row answers."""
    return Case(row["model"], row["device"], row["tp"], row["kv_cache_dtype"], row["extra_args"])


def differences(committed: Row, planned: Row) -> list[str]:
    """Keys whose values differ, both of them."""
    keys = sorted(committed.keys() | planned.keys())
    return [
        f"{key}: {committed.get(key)!r} -> {planned.get(key)!r}"
        for key in keys
        if committed.get(key) != planned.get(key)
    ]
