"""The cache of built programs: complete or repaired, never half-believed. Nothing is compiled here."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from e2e.controlplane import binaries, gobuild, golang, store
from e2e.controlplane.targets import TARGETS

NAMES = ["etcd", "kubectl"]


class Builder:
    """Writes small programs and remembers which."""

    def __init__(self) -> None:
        self.built: list[str] = []

    def __call__(self, scratch: Path, names: Sequence[str]) -> None:
        for name in names:
            self.built.append(name)
            program = scratch / name
            program.write_bytes(b"program " + name.encode())
            program.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A complete store of two programs."""
    store.fill(tmp_path / "key", NAMES, Builder())
    return tmp_path / "key"


def truncate(folder: Path) -> None:
    (folder / "kubectl").write_bytes(b"pro")


def overwrite(folder: Path) -> None:
    (folder / "kubectl").write_bytes(b"PROGRAM kubectl")


def remove(folder: Path) -> None:
    (folder / "kubectl").unlink()


def forbid(folder: Path) -> None:
    (folder / "kubectl").chmod(0o644)


def lose_manifest(folder: Path) -> None:
    (folder / store.MANIFEST).unlink()


def halve_manifest(folder: Path) -> None:
    manifest = (folder / store.MANIFEST).read_bytes()
    (folder / store.MANIFEST).write_bytes(manifest[: len(manifest) // 2])


def touch(folder: Path) -> None:
    os.utime(folder / "kubectl", ns=(1, 1))


@pytest.mark.parametrize(
    ("harm", "rebuilt"),
    [
        pytest.param(truncate, ["kubectl"], id="a half-written file"),
        pytest.param(overwrite, ["kubectl"], id="other bytes of the same length"),
        pytest.param(remove, ["kubectl"], id="a missing file"),
        pytest.param(forbid, ["kubectl"], id="not executable"),
        pytest.param(lose_manifest, NAMES, id="no manifest: the first build was killed"),
        pytest.param(halve_manifest, NAMES, id="half a manifest"),
        pytest.param(touch, [], id="another time but the same bytes, as in a copied cache"),
    ],
)
def test_what_is_broken_is_rebuilt_and_nothing_else(
    folder: Path, harm: Callable[[Path], None], rebuilt: list[str]
) -> None:
    harm(folder)
    again = Builder()
    store.fill(folder, NAMES, again)
    assert again.built == rebuilt
    assert store.complete(folder, NAMES)
    assert (folder / "kubectl").read_bytes() == b"program kubectl"


def test_a_build_that_fails_claims_nothing(tmp_path: Path) -> None:
    def half_a_build(scratch: Path, names: Sequence[str]) -> None:
        Builder()(scratch, names[:1])
        raise gobuild.BuildError("no space left")

    with pytest.raises(gobuild.BuildError):
        store.fill(tmp_path / "key", NAMES, half_a_build)
    assert store.broken(tmp_path / "key", NAMES) == NAMES
    assert not list(tmp_path.glob(f"{store.SCRATCH_PREFIX}*"))


def test_what_a_killed_build_left_is_cleared_away(tmp_path: Path) -> None:
    abandoned = tmp_path / f"{store.SCRATCH_PREFIX}killed"
    abandoned.mkdir()
    (abandoned / "kube-apiserver").write_bytes(b"half")
    store.fill(tmp_path / "key", NAMES, Builder())
    assert not abandoned.exists()


def test_two_first_starts_build_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    builder, under_way, second_waits = Builder(), threading.Event(), threading.Event()

    def slow_build(_go: object, _group: object, scratch: Path, names: Sequence[str], _log: object) -> None:
        under_way.set()
        assert second_waits.wait(10)
        builder(scratch, names)

    monkeypatch.setattr(gobuild, "build", slow_build)
    first = threading.Thread(target=binaries.ensure)
    first.start()
    assert under_way.wait(10)
    second = binaries.ensure(lambda line: second_waits.set() if "waiting" in line else None)
    first.join()
    assert sorted(builder.built) == sorted(target.name for target in TARGETS)
    assert second.kubectl.is_file()
    assert second.bin_dir.is_relative_to(tmp_path / "plimsoll")


def go_on_path(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize(
    ("version", "used"),
    [
        pytest.param("1.99.0", True, id="newer than go.mod asks"),
        pytest.param("1.9.7", False, id="older, though larger as text"),
        pytest.param("devel", False, id="a development build"),
    ],
)
def test_go_comes_from_path_only_when_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, used: bool
) -> None:
    go_on_path(tmp_path, version, monkeypatch)
    found = golang.find(tmp_path / "cache")
    assert found.installed is used
    assert (found.version == version) is used


def test_without_go_the_pinned_wheel_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = golang.find(tmp_path / "cache")
    assert [int(part) for part in found.version.split(".")] >= [int(p) for p in golang.required_version().split(".")]
    assert found.path.is_relative_to(tmp_path / "cache")


@pytest.mark.parametrize(
    ("done", "seconds", "line"),
    [
        (0, 15.0, "0 of 3000 packages compiled, 15 s gone"),
        (1000, 90.0, "1000 of 3000 packages compiled, 1 min 30 s gone, about 3 min 00 s left"),
        (3000, 240.0, "3000 of 3000 packages compiled, 4 min 00 s gone, about 0 s left"),
    ],
)
def test_progress_says_how_far_and_how_long(done: int, seconds: float, line: str) -> None:
    assert gobuild.progress_line(done, 3000, seconds) == line
