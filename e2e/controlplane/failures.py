"""Where the log of a failed process goes: its own folder is removed with everything else, this copy stays."""

import os
import shutil
from pathlib import Path
from typing import Final

from e2e.controlplane.binaries import cache_folder

KEPT: Final = 10


def keep(log: Path) -> Path:
    """Copy a log to the cache folder and return the copy; the newest ten are kept. A missing log stays where it is."""
    if not log.exists():
        return log
    folder = cache_folder() / "failed"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{log.parent.parent.name.lstrip('.')}-{os.getpid()}-{log.name}"
    shutil.copyfile(log, kept)
    for old in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)
    return kept
