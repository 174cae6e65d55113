"""``python -m tools.image FOLDER``: the root file system of the operator's image. The Containerfile calls it.

A Python, the packages that the lock file put into our own environment (hashes checked), the C libraries both need, the
operator: what ``e2e/node`` runs on a real kubelet, from the same list. No shell, no package manager, no compiler.
The same commit gives the same bytes: no times, no paths of the build, bytecode that does not depend on either.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from e2e.node.images import application, runtime
from e2e.node.images.layer import Folder, Layer, Link, Source, Text

ROOT: Final = Path(__file__).resolve().parent.parent
EPOCH_SECONDS: Final = 315_532_800  # 1980, before which no zip file can be written; SOURCE_DATE_EPOCH wins
OWN: Final = ("plimsoll/", "plimsoll_operator-")


def content() -> Layer:
    """Everything but the operator itself, which comes from its wheel, and bytecode, which is made anew."""
    found = {**runtime.layer(), **application.operator_layer()}
    return {path: source for path, source in found.items() if not _own(path) and "/__pycache__/" not in path}


def build(folder: Path, layer: Layer) -> None:
    """The whole file system in a new folder."""
    lay_out(folder, layer)
    for path, text in package_records(layer):
        _put(folder / path.lstrip("/"), Text(text))
    _compile(folder)
    _set_times(folder, int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH_SECONDS)))


def lay_out(folder: Path, layer: Layer) -> None:
    """What runs, without bytecode."""
    for path, source in layer.items():
        _put(folder / path.lstrip("/"), source)
    _install_wheel(folder / application.FOLDER.lstrip("/"))


def package_records(layer: Layer) -> Iterator[tuple[str, str]]:
    """What scanners read in images without a package manager: a record and the licence of each Debian package used."""
    if shutil.which("dpkg-query") is None:
        return
    libraries = [path for path, source in layer.items() if isinstance(source, Path) and not path.startswith("/opt/")]
    for name in sorted({owner for path in libraries for owner in _owners(path)}):
        yield f"/var/lib/dpkg/status.d/{name}", _dpkg("--status", name)
        licence = Path("/usr/share/doc", name, "copyright")
        if licence.exists():
            yield str(licence), licence.read_text(encoding="utf-8", errors="replace")
    yield "/etc/os-release", Path("/etc/os-release").read_text(encoding="utf-8")


def _owners(path: str) -> Iterator[str]:
    """The package a library is from; Debian lists it with or without ``/usr``."""
    if ".so" not in path:
        return
    for spelling in (path, path.removeprefix("/usr"), f"/usr{path}"):
        answer = _dpkg("--search", spelling)
        if answer:
            yield answer.split(":")[0]
            return


def _dpkg(*arguments: str) -> str:
    done = subprocess.run(["dpkg-query", *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def _own(path: str) -> bool:
    return path.removeprefix(f"{application.FOLDER}/").startswith(OWN)


def _put(target: Path, source: Source) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    match source:
        case Link(there):
            target.symlink_to(there)
        case Folder(mode):
            target.mkdir()
            target.chmod(mode)
        case Text(text):
            target.write_text(text, encoding="utf-8")
        case Path():
            shutil.copyfile(source, target)
            target.chmod(source.stat().st_mode & 0o755 | 0o444)


def _install_wheel(site: Path) -> None:
    """The operator as anybody would install it: files and metadata, no link to this checkout."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", scratch]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)


def _compile(folder: Path) -> None:
    """Bytecode that names the source by its path in the image and is believed whatever the times say."""
    options = ["-q", "-f", "-j", "0", "-s", str(folder), "-p", "/", "--invalidation-mode", "unchecked-hash"]
    environment: Mapping[str, str] = {**os.environ, "PYTHONHASHSEED": "0"}
    # A library may carry a file for an older Python; what cannot be compiled cannot be imported either.
    subprocess.run([sys.executable, "-m", "compileall", *options, str(folder)], env=environment, check=False)


def _set_times(folder: Path, seconds: int) -> None:
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (seconds, seconds), follow_symlinks=False)


if __name__ == "__main__":
    build(Path(sys.argv[1]), content())
