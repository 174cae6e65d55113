"""The programs of the control plane, in the user's cache folder, built once from `go.mod`."""

import hashlib
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from e2e.controlplane import gobuild, golang, store
from e2e.controlplane.targets import BUILD_ENV, BUILD_FLAGS, CONTROL_PLANE, TARGETS, Group

KEY_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where each program is."""

    bin_dir: Path
    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path
    prometheus: Path

    @classmethod
    def inside(cls, folder: Path) -> Self:
        return cls(folder, **{target.name.replace("-", "_"): folder / target.name for target in TARGETS})


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/plimsoll`, or `~/.cache/plimsoll`. A relative XDG path is to be ignored (its specification)."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "plimsoll"


def ensure(log: Callable[[str], None] = print) -> Binaries:
    """The control plane's programs."""
    return Binaries.inside(ensure_group(CONTROL_PLANE, log))


def ensure_group(group: Group, log: Callable[[str], None] = print) -> Path:
    """The folder of a group's programs; builds what is missing or broken (minutes), else costs a few stats."""
    root = cache_folder() / "controlplane"
    go = golang.find(root)
    folder = root / _key(go.version, group.module)
    if not store.complete(folder, group.program_names):
        with store.locked(root, lambda: log(f"another process is building; waiting to build {group.name}")):
            store.fill(
                folder, group.program_names, lambda scratch, missing: gobuild.build(go, group, scratch, missing, log)
            )
    return folder


def _key(go_version: str, module: Path) -> str:
    """A name for what the programs are made of: the same inputs share a folder, any other input gets its own."""
    made_of = [
        (module / "go.mod").read_bytes(),
        (module / "go.sum").read_bytes(),
        go_version.encode(),
        repr((BUILD_FLAGS, sorted(BUILD_ENV.items()))).encode(),
        f"{platform.system()}/{platform.machine()}".encode(),
    ]
    digest = hashlib.sha256()
    for part in made_of:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:KEY_LENGTH]
