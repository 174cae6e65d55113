"""Whether a node can run on this machine, asked of the machine itself."""

import os
import platform
import secrets
import subprocess
from typing import Final

from e2e.node import cgroups, enter, packages

# What a run does first, tried in namespaces that vanish at once: mounts, a pair of interfaces, address translation.
TRIAL: Final = """
set -e
mount -t tmpfs none /mnt
mkdir /mnt/lower /mnt/upper /mnt/work /mnt/merged
mount -t overlay none -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work /mnt/merged
ip link add trial0 type veth peer name trial1
iptables -w -t nat -A POSTROUTING -m comment --comment trial -m statistic --mode random --probability 0.5 -j MASQUERADE
"""


def obstacle_before_installing() -> str | None:
    """Why this machine cannot run a node whatever is installed, or None."""
    if platform.system() != "Linux":
        return f"a kubelet needs Linux, this is {platform.system()}"
    if os.geteuid() != 0:
        return f"namespaces, mounts and containers need root, this is user {os.geteuid()} (try: sudo make test-node)"
    if packages.find("unshare") is None and packages.find("apt-get") is None:
        return "there is no `unshare` (package util-linux) to make namespaces with"
    return None


def obstacle() -> str | None:
    """Why the kernel or the container around us does not allow it, or None; everything is installed by now."""
    trial = subprocess.run(
        [*enter.unshare(), "/bin/sh", "-c", TRIAL],
        env={"PATH": packages.SEARCH_PATH},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if trial.returncode:
        return f"the kernel, or the container around us, refused what a node does first: {trial.stderr.strip()}"
    return _cgroup_obstacle()


def _cgroup_obstacle() -> str | None:
    name = f"plimsoll-trial-{secrets.token_hex(4)}"
    try:
        cgroups.create(name)
        withheld = cgroups.withheld(name)
    except OSError as error:
        return f"control groups cannot be made: {error}"
    finally:
        cgroups.remove(name)
    return f"control groups made here do not get the controllers {', '.join(withheld)}" if withheld else None
