"""A folder of built programs that repairs itself: it is complete when its manifest says so and the files agree.

Each file arrives by an atomic rename and the manifest comes last, so a build that was killed leaves no false
claim, and replacing a broken file never takes a good one away from a lab that runs from it.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MANIFEST: Final = "manifest.json"
SCRATCH_PREFIX: Final = ".building-"

Entry = dict[str, int | str]


def complete(folder: Path, names: Sequence[str]) -> bool:
    """Whether every named program is there and unharmed. Costs one stat a file."""
    return not broken(folder, names)


def broken(folder: Path, names: Sequence[str]) -> list[str]:
    """The programs that are missing or not what the manifest recorded."""
    manifest = _read_manifest(folder)
    return [name for name in names if not _intact(folder / name, manifest.get(name))]


def fill(folder: Path, names: Sequence[str], build: Callable[[Path, Sequence[str]], None]) -> None:
    """Have `build(scratch, names)` make what is broken, and move it in. The caller holds `locked`."""
    _drop_abandoned_scratch(folder.parent)
    missing = broken(folder, names)
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=folder.parent) as scratch:
        build(Path(scratch), missing)
        entries = {name: _entry(Path(scratch, name)) for name in missing}
        for name in missing:
            Path(scratch, name).replace(folder / name)
        kept = {name: entry for name, entry in _read_manifest(folder).items() if name not in entries}
        draft = Path(scratch, MANIFEST)
        draft.write_text(json.dumps({**kept, **entries}, indent=2))
        draft.replace(folder / MANIFEST)


@contextmanager
def locked(root: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Only one process builds below `root`; the kernel drops the lock with the process. `waiting` is told once."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read_manifest(folder: Path) -> dict[str, Entry]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _entry(path: Path) -> Entry:
    stat = path.stat()
    return {"bytes": stat.st_size, "mtimeNs": stat.st_mtime_ns, "sha256": _sha256(path)}


def _intact(path: Path, recorded: Entry | None) -> bool:
    """Size and time as recorded are believed; another time (a copied cache, a stray write) costs a hash."""
    try:
        stat = path.stat()
    except OSError:
        return False
    if not recorded or stat.st_size != recorded.get("bytes") or not os.access(path, os.X_OK):
        return False
    return stat.st_mtime_ns == recorded.get("mtimeNs") or _sha256(path) == recorded.get("sha256")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _drop_abandoned_scratch(root: Path) -> None:
    for scratch in root.glob(f"{SCRATCH_PREFIX}*"):
        shutil.rmtree(scratch, ignore_errors=True)
