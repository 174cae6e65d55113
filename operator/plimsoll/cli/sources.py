"""Texts to read services from: files, folders, and stdin as text or as the tar archive of another revision's folder."""

import io
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUFFIXES: Final = (".yaml", ".yml", ".json")
MOST_BYTES: Final = 16 * 2**20
_TAR_MAGIC: Final = slice(257, 262)


@dataclass(frozen=True)
class Bad:
    """Something that could not be read, in a sentence that names file, line or field, and what is allowed."""

    message: str


def texts(path: str) -> Iterator[tuple[str, str | Bad]]:
    """(name, text) of everything a path stands for."""
    if path == "-":
        yield from _standard_input()
        return
    where = Path(path)
    if where.is_dir():
        found = sorted(p for p in where.rglob("*") if p.suffix in SUFFIXES and p.is_file() and not _apart(p, where))
        if not found:
            yield path, Bad(f"{path}: no {', '.join(SUFFIXES)} file in this folder")
        yield from ((str(p), _text(p)) for p in found)
    else:
        yield path, _text(where)


def _apart(path: Path, root: Path) -> bool:
    """Whether a file belongs to a tool and not to whoever wrote the folder."""
    return any(step.startswith(".") or step == "node_modules" for step in path.relative_to(root).parts[:-1])


def _standard_input() -> Iterator[tuple[str, str | Bad]]:
    """Text, or a tar archive as ``git archive`` makes one: that is how a folder of another revision is piped in."""
    content = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(content) <= _TAR_MAGIC.stop or not content[_TAR_MAGIC].startswith(b"ustar"):
        yield "stdin", _decoded("stdin", content)
        return
    try:
        yield from _archived(content)
    except tarfile.TarError as error:
        yield "stdin", Bad(f"stdin: not a readable tar archive: {error}")


def _archived(content: bytes) -> Iterator[tuple[str, str | Bad]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = [m for m in archive if m.isfile() and m.name.endswith(SUFFIXES)]
        for member in sorted(members, key=lambda m: m.name):
            file = archive.extractfile(member)
            yield f"stdin:{member.name}", _decoded(f"stdin:{member.name}", file.read() if file else b"")


def _text(path: Path) -> str | Bad:
    try:
        with path.open("rb") as file:
            return _decoded(str(path), file.read(MOST_BYTES + 1))
    except OSError as error:
        return Bad(f"{path}: {error.strerror or error}")
    except ValueError as error:
        return Bad(f"{path!r}: not a path: {error}")


def _decoded(name: str, content: bytes) -> str | Bad:
    if len(content) > MOST_BYTES:
        return Bad(f"{name}: more than the {MOST_BYTES} bytes that are read")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Bad(f"{name}: not UTF-8 text (byte {error.start})")
