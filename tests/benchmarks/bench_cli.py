"""The command line as people wait for it: `plimsoll plan` from a cold start, and a folder of services.

SERVICES=1000 changes the size of the folder.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import yaml

from plimsoll.facts import catalogue
from tests.benchmarks.report import figure, quantile

SERVICES: Final = int(os.environ.get("SERVICES", "1000"))
STARTS: Final = 15
KIB_PER_MIB: Final = 1024
GPUS: Final = (
    "NVIDIA-L4",
    "NVIDIA-L40S",
    "NVIDIA-A100-SXM4-80GB",
    "NVIDIA-H100-80GB-HBM3",
    "NVIDIA-H200",
    "NVIDIA-B200",
)
EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "qwen3.5-9b.yaml"
PROGRAM: Final = (sys.executable, "-c", "from plimsoll.cli.main import app; app()")


def main() -> None:
    """Print each figure."""
    cold_start()
    with tempfile.TemporaryDirectory() as folder:
        _write_services(Path(folder))
        services_in_a_folder(folder)
        report_of_a_folder(folder)


def cold_start() -> None:
    """One file, a fresh process each time; the interpreter's own start is part of what people wait for."""
    runs = [_run("plan", str(EXAMPLE)) for _ in range(STARTS)]
    walls = [wall for wall, _, _ in runs]
    figure("cli_plan_cold_best", min(walls), "s", goal=0.5)
    figure("cli_plan_cold_p50", quantile(walls, 0.5), "s", goal=0.5)
    figure("cli_plan_cold_cpu", quantile([cpu for _, cpu, _ in runs], 0.5), "s")


def services_in_a_folder(folder: str) -> None:
    """A folder of services, each a file: every model of the catalogue in turn, six GPUs, three contexts."""
    wall, cpu, peak = _run("plan", folder, "-o", "json")
    figure("cli_plan_folder_wall", wall, "s", services=SERVICES, cpu_s=round(cpu, 2))
    figure("cli_plan_folder_rss", peak / KIB_PER_MIB, "MiB", services=SERVICES)


def report_of_a_folder(folder: str) -> None:
    """The same folder with its HTML report."""
    page = Path(folder) / "report.html"
    wall, _, peak = _run("plan", folder, "-o", "json", "--html", str(page))
    size = page.stat().st_size / KIB_PER_MIB**2
    figure("cli_report_folder_wall", wall, "s", services=SERVICES, page_mib=round(size, 2), rss_mib=peak // KIB_PER_MIB)


def _write_services(folder: Path) -> None:
    names = [name for name in catalogue.names() if "/" in name and "(" not in name]
    for number in range(SERVICES):
        spec = {
            "model": {"id": names[number % len(names)]},
            "hardware": {"gpu": GPUS[number % len(GPUS)], "maxGPUs": 16},
            "contextTokens": (8192, 32768, 131072)[number % 3],
            "load": {"concurrency": 8 + number % 40, "promptTokens": 2000, "outputTokens": 400},
        }
        head = {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "VLLMService", "metadata": {"name": f"svc-{number}"}}
        (folder / f"svc-{number:04d}.yaml").write_text(yaml.safe_dump({**head, "spec": spec}), encoding="utf-8")


def _run(*arguments: str) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and largest resident KiB of one run."""
    started = time.perf_counter()
    child = subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(child.pid, 0)
    child.returncode = 0
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


if __name__ == "__main__":
    main()
