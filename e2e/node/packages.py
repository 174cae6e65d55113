"""The programs of a node that are not built here: where they are, and the Debian packages that bring them."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CNI_FOLDERS: Final = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
CNI_PLUGINS: Final = ("ptp", "host-local", "loopback")
# Package scripts ask this file whether they may start a service; exit code 101 is "no".
POLICY: Final = Path("/usr/sbin/policy-rc.d")


class NotInstalledError(RuntimeError):
    """A program is missing and cannot be installed here."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program and the Debian package it comes in."""

    name: str
    package: str


PROGRAMS: Final = (
    Program("containerd", "containerd"),
    Program("ctr", "containerd"),
    Program("runc", "runc"),
    Program("iptables", "iptables"),
    Program("ip", "iproute2"),
    Program("mount", "mount"),
    Program("unshare", "util-linux"),
)


def find(program: str) -> Path | None:
    """Where the program is; root's PATH often lacks the sbin folders."""
    found = shutil.which(program, path=SEARCH_PATH)
    return Path(found) if found else None


def run(program: str, *arguments: str) -> None:
    """One of the programs, which must succeed."""
    subprocess.run([str(find(program)), *arguments], check=True)


def cni_folder() -> Path | None:
    """The folder that holds all plugins we use."""
    return next((f for f in CNI_FOLDERS if all((f / plugin).exists() for plugin in CNI_PLUGINS)), None)


def missing() -> list[str]:
    """The Debian packages that would have to be installed."""
    packages = {program.package for program in PROGRAMS if find(program.name) is None}
    if cni_folder() is None:
        packages.add("containernetworking-plugins")
    return sorted(packages)


def ensure(log: Callable[[str], None]) -> None:
    """Install what is missing, after saying so.

    Raises:
        NotInstalledError: no apt-get, or it failed.

    """
    packages = missing()
    if not packages:
        return
    named = ", ".join(packages)
    if find("apt-get") is None:
        raise NotInstalledError(f"the programs of the Debian packages {named} are missing, and so is apt-get")
    log(f"installing with apt-get, to stay: {named} (their services are not started)")
    with _no_service_starts():
        if _apt("install", *packages):
            _apt("update")
            error = _apt("install", *packages)
            if error:
                raise NotInstalledError(f"apt-get could not install {named}: {error}")


def _apt(action: str, *packages: str) -> str:
    """What apt-get complained about; nothing when it succeeded."""
    done = subprocess.run(
        ["apt-get", action, "-y", "-qq", "--no-install-recommends", *packages],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Debian starts a service when its package arrives; a second containerd on the machine is not what we want."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
