"""One `go build` of the missing programs, with progress a person can wait by."""

import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

from e2e.controlplane import golang, tether
from e2e.controlplane.targets import BUILD_ENV, BUILD_FLAGS, TAGS, Group, Target

REPORT_SECONDS: Final = 15.0
TAIL_LINES: Final = 20
# Before this share is compiled an extrapolation would be a guess.
ENOUGH_SHARE: Final = 0.02


class BuildError(RuntimeError):
    """`go build` failed, or built something that is not what the table says."""


def build(go: golang.Go, group: Group, scratch: Path, names: Sequence[str], log: Callable[[str], None]) -> None:
    """Put the named programs of a group into `scratch`, each checked to report its version."""
    if not go.installed:
        golang.install(go, log)
    targets = [target for target in group.targets if target.name in names]
    log(f"building {', '.join(names)} with Go {go.version}: once, some minutes on two cores")
    started = time.monotonic()
    total = _count_packages(go, group.module, targets, scratch, log)
    _compile(go, group.module, scratch, targets, total, log)
    for target in targets:
        (scratch / target.built_name).rename(scratch / target.name)
        _verify(scratch / target.name, target)
    log(f"built in {_minutes(time.monotonic() - started)}")


def progress_line(done: int, total: int, elapsed_seconds: float) -> str:
    """Packages compiled, time gone and an estimate of the rest, once there is enough to extrapolate from.

    Packages that Go has in its own cache are never reported, so the estimate can only be too long.
    """
    so_far = f"{done} of {total} packages compiled, {_minutes(elapsed_seconds)} gone"
    if done < ENOUGH_SHARE * total:
        return so_far
    return f"{so_far}, about {_minutes(elapsed_seconds * (total - done) / done)} left"


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def _count_packages(
    go: golang.Go, module: Path, targets: Sequence[Target], scratch: Path, log: Callable[[str], None]
) -> int:
    """How many packages the programs consist of; listing them also downloads the modules that are not there yet."""
    listed = scratch / "packages"
    command = [str(go.path), "list", "-deps", TAGS, *(target.package for target in targets)]
    with listed.open("w") as file:
        _follow(command, module, lambda output, _: f"{output.downloads} Go modules downloaded", log, stdout=file)
    return len(listed.read_text().splitlines())


def _compile(
    go: golang.Go,
    module: Path,
    scratch: Path,
    targets: Sequence[Target],
    total: int,
    log: Callable[[str], None],
) -> None:
    packages = [target.package for target in targets]
    command = [str(go.path), "build", "-v", *BUILD_FLAGS, f"-o={scratch}/", *packages]
    _follow(command, module, lambda output, seconds: progress_line(output.packages, total, seconds), log)


def _follow(
    command: list[str],
    module: Path,
    progress: Callable[["_Output", float], str],
    log: Callable[[str], None],
    *,
    stdout: IO[str] | None = None,
) -> None:
    """Run a Go command in a module's folder and log its `progress(output, seconds so far)`; it dies with us."""
    started = time.monotonic()
    with subprocess.Popen(
        tether.command(command),
        cwd=module,
        env={**os.environ, **BUILD_ENV, "GOTOOLCHAIN": "local"},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        output = _Output(process)
        try:
            while not output.ended(within_seconds=REPORT_SECONDS):
                log(progress(output, time.monotonic() - started))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        tail = "\n".join(f"  {line}" for line in output.tail)
        raise BuildError(f"`go {command[1]}` failed with exit code {process.returncode}:\n{tail}")


class _Output:
    """Follows what Go prints: a line a downloaded module, a line a compiled package, errors among them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.packages = 0
        self.downloads = 0
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._process = process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ended(self, *, within_seconds: float) -> bool:
        self._reader.join(within_seconds)
        return not self._reader.is_alive()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.packages += not line.startswith("go: ")
            self.downloads += line.startswith("go: downloading ")
            self.tail.append(line.rstrip())


def _verify(program: Path, target: Target) -> None:
    done = subprocess.run([str(program), *target.version_args], capture_output=True, text=True, check=False)
    if target.version not in done.stdout + done.stderr:
        said = (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"
        raise BuildError(f"{target.name} was built but does not report version {target.version}: {said}")
