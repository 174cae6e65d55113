"""A layer of an image: paths, what is at them, a key over all of it, and the tar."""

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EXCLUDED_SUFFIXES: Final = (".a", ".o")


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that has to exist although nothing is in it."""

    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Text:
    """A small file made here."""

    content: str


Source = Path | Link | Folder | Text
Layer = Mapping[str, Source]
"""Absolute path in the image → what is there. A `Path` is a file of this machine, links followed."""


def key(layer: Layer) -> str:
    """A name for the layer's content; files are known by path, size and time."""
    digest = hashlib.sha256()
    for path, source in sorted(layer.items()):
        digest.update(f"{path}\0{_identity(source)}\n".encode())
    return digest.hexdigest()[:16]


def tree(folder: Path, at: str, *, leave_out: frozenset[str] = frozenset()) -> Iterator[tuple[str, Path]]:
    """The files of a folder, below `at` in the image, without folders and files of the names left out."""
    for entry in sorted(folder.iterdir()):
        if entry.name in leave_out or entry.suffix in EXCLUDED_SUFFIXES:
            continue
        if entry.is_dir():
            yield from tree(entry, f"{at}/{entry.name}", leave_out=leave_out)
        elif entry.exists():
            yield f"{at}/{entry.name}", entry


def write(layer: Layer, tar_path: Path) -> None:
    """The layer as a tar file, all of it root's. Times are kept: Python believes its bytecode by them."""
    with tarfile.open(tar_path, "w", format=tarfile.GNU_FORMAT) as tar:
        for path, source in sorted(layer.items()):
            _add(tar, path.lstrip("/"), source)


def _identity(source: Source) -> str:
    if isinstance(source, Path):
        stat = source.stat()
        return f"{source} {stat.st_size} {stat.st_mtime_ns} {stat.st_mode}"
    return repr(source)


def _add(tar: tarfile.TarFile, name: str, source: Source) -> None:
    entry = tarfile.TarInfo(name)
    match source:
        case Link(target):
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        case Folder(mode):
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        case Text(content):
            data = content.encode()
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        case Path():
            stat = source.stat()
            entry.size, entry.mode, entry.mtime = stat.st_size, stat.st_mode & 0o755 | 0o444, int(stat.st_mtime)
            with source.open("rb") as file:
                tar.addfile(entry, file)
