"""Helm as a function."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.labrun import CHECKOUT

CHART: Final = CHECKOUT / "charts" / "plimsoll"


class HelmError(RuntimeError):
    """Helm said no; the message is its stderr."""


@dataclass(frozen=True, slots=True)
class Helm:
    """One Helm with one identity. `home` is where it keeps its own files, instead of the user's home."""

    program: Path
    kubeconfig: Path
    home: Path

    def __call__(self, *args: str) -> str:
        """Run it and return its stdout; raise with its stderr when it fails."""
        folders = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        done = subprocess.run(
            [str(self.program), *args],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **folders, "KUBECONFIG": str(self.kubeconfig)},
        )
        if done.returncode:
            raise HelmError(f"helm {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout
