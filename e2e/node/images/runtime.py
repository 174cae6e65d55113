"""The Python that runs us as a layer: interpreter, standard library, the C libraries they need, and nothing else.

No shell, no package manager: what the operator's image is meant to look like, and there in a second.
"""

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from e2e.node.images.layer import Folder, Layer, Link, Source, Text, tree

PYTHON: Final = "/usr/local/bin/python3"
USER_ID: Final = 65532
_NOT_NEEDED: Final = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"}
)
_TEXT: Final = frozenset({".py", ".pyc", ".pyi", ".json", ".txt", ".gz"})
_LIBRARY: Final = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)


def layer() -> Layer:
    """Everything below the application."""
    files: dict[str, Source] = {
        "/tmp": Folder(0o1777),
        "/etc/passwd": Text(f"root:x:0:0:root:/:/nologin\nnonroot:x:{USER_ID}:{USER_ID}:nonroot:/tmp:/nologin\n"),
        # glibc asks the name server first otherwise, and /etc/hosts only after it failed.
        "/etc/nsswitch.conf": Text("hosts: files dns\n"),
        "/etc/group": Text(f"root:x:0:\nnonroot:x:{USER_ID}:\n"),
    }
    files.update(_standard_library())
    files.update(_interpreter())
    files.update(shared_libraries(source for source in files.values() if isinstance(source, Path)))
    return files


def shared_libraries(files: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """What the dynamic loader would load for these files, the loader included, at the paths where it looks."""
    binaries = [str(file) for file in files if _is_elf(file)]
    if not binaries:
        return
    listed = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    for path in sorted(set(_LIBRARY.findall(listed))):
        yield path, Path(path)


def _interpreter() -> Iterator[tuple[str, Source]]:
    """At its own path, from which it finds its library, and on PATH."""
    program = Path(sys.executable).resolve()
    yield str(program), program
    for link in (PYTHON, "/usr/local/bin/python"):
        if link != str(program):
            yield link, Link(str(program))
    cache = Path("/etc/ld.so.cache")  # libraries outside the loader's built-in folders
    if cache.exists():
        yield str(cache), cache


def _standard_library() -> Iterator[tuple[str, Path]]:
    pure = sysconfig.get_path("stdlib")
    compiled = sysconfig.get_path("platstdlib", vars={"platbase": sys.base_exec_prefix})
    for folder in {pure, compiled}:
        for path, file in tree(Path(folder), folder, leave_out=_NOT_NEEDED):
            if "/config-" not in path and not file.name.startswith("_tkinter."):
                yield path, file


def _is_elf(file: Path) -> bool:
    if file.suffix in _TEXT:
        return False
    with file.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"
