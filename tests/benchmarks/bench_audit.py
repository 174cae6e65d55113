"""A folder of manifests that others wrote: seconds and memory of `plimsoll audit` from a cold start.

OBJECTS=1000 changes the size of the folder. The rows are those of tests/data/audit, over and over.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import yaml

from tests.benchmarks.report import figure
from tools.audit_manifests import manifests

OBJECTS: Final = int(os.environ.get("OBJECTS", "1000"))
FACTS: Final = Path(__file__).parents[1] / "data" / "audit" / "facts.jsonl"
PROGRAM: Final = (sys.executable, "-c", "from plimsoll.cli.main import app; app()")
KIB_PER_MIB: Final = 1024


def main() -> None:
    """Print each figure."""
    with tempfile.TemporaryDirectory() as folder:
        written = _write(Path(folder))
        wall, cpu, peak = _run("audit", folder, "-o", "json", "--fail-on", "never")
        figure("cli_audit_folder_wall", wall, "s", objects=written, cpu_s=round(cpu, 2))
        figure("cli_audit_folder_rss", peak / KIB_PER_MIB, "MiB", objects=written)
        first = min(Path(folder).iterdir())
        wall, cpu, _ = _run("audit", str(first), "--fail-on", "never")
        figure("cli_audit_cold", wall, "s", cpu_s=round(cpu, 2))


def _write(folder: Path) -> int:
    rows = [json.loads(line) for line in FACTS.read_text(encoding="utf-8").splitlines()]
    count = 0
    while count < OBJECTS:
        row = rows[count % len(rows)]
        objects = manifests({**row, "id": f"{row['id']}-{count}"})
        (folder / f"{count:05}.yaml").write_text(yaml.safe_dump_all(objects), encoding="utf-8")
        count += len(objects)
    return count


def _run(*arguments: str) -> tuple[float, float, int]:
    """(wall seconds, CPU seconds, peak KiB) of one command."""
    started = time.perf_counter()
    with subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss


if __name__ == "__main__":
    main()
