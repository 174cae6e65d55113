"""The planner's own speed: one prediction, one layout, ten thousand rows through the command, importing the core.

ROWS=10000 changes the size.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from plimsoll.cli.predict import Models
from plimsoll.core.kv import EngineOptions, plan_layout
from plimsoll.core.rows import answer
from plimsoll.facts import catalogue, gpus
from plimsoll.facts.models import read_model
from tests.benchmarks.report import figure, quantile

ROWS: Final = int(os.environ.get("ROWS", "10000"))
REPEATS: Final = 400
IMPORTS: Final = 9
MODEL: Final = "Qwen/Qwen3.5-9B"
GPU: Final = "NVIDIA-H100-80GB-HBM3"
_MICRO: Final = 1e6
_MILLI: Final = 1e3


def main() -> None:
    """Print each figure."""
    prediction()
    layout()
    rows()
    importing()


def prediction() -> None:
    """One full prediction of a known model, median."""
    models = Models(Path())
    row = {"model": MODEL, "gpu": GPU, "flags": {"max_num_seqs": 64, "max_model_len": 131072}}
    seconds = _timed(lambda: answer(row, models))
    figure("predict_one_p50", quantile(seconds, 0.5) * _MILLI, "ms", model=MODEL, goal=1.0)


def layout() -> None:
    """One KV layout, median."""
    entry, gpu = catalogue.find(MODEL), gpus.find(GPU)
    assert entry is not None
    assert gpu is not None
    facts, options = read_model(entry.config), EngineOptions(device=gpu, max_model_len=131072)
    seconds = _timed(lambda: plan_layout(facts, options))
    figure("layout_p50", quantile(seconds, 0.5) * _MICRO, "µs", model=MODEL, goal=200.0)


def rows() -> None:
    """Rows through ``plimsoll predict``: wall time, and the process's largest resident memory."""
    names = [name for name in catalogue.names() if "/" in name]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        for number in range(ROWS):
            file.write(json.dumps(_row(number, names[number % len(names)])) + "\n")
        file.flush()
        started = time.perf_counter()
        command = subprocess.Popen(
            [sys.executable, "-c", "from plimsoll.cli.main import app; app()", "predict", file.name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # Of this child alone: RUSAGE_CHILDREN knows the largest of all there ever were.
        _, status, usage = os.wait4(command.pid, 0)
        wall = time.perf_counter() - started
        command.returncode = os.waitstatus_to_exitcode(status)
    figure("predict_rows_wall", wall, "s", rows=ROWS)
    figure("predict_rows_rss", usage.ru_maxrss / 1024, "MiB", rows=ROWS)


def _row(number: int, model: str) -> dict[str, Any]:
    flags = {"tensor_parallel_size": 1 << number % 4, "max_num_seqs": 64, "max_model_len": 2048}
    return {"id": number, "model": model, "gpu": GPU, "flags": flags}


def importing() -> None:
    """A fresh interpreter importing what a prediction needs, without the interpreter's own start."""
    bare = min(_run("pass") for _ in range(IMPORTS))
    whole = min(_run("import plimsoll.core.rows") for _ in range(IMPORTS))
    figure("import_core", (whole - bare) * _MILLI, "ms", goal=150.0)


def _run(program: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - started


def _timed(work: Callable[[], object]) -> list[float]:
    work()
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return seconds
