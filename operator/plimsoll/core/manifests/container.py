"""The engine's container as everybody must know it: its name, its port, the volumes and paths that are ours."""

from typing import Final

CONTAINER: Final = "vllm"
GATE_CONTAINER: Final = "gate"
"""Of a quality gate's Job: the one whose result is read."""
HTTP_PORT: Final = 8000
HTTP_PORT_NAME: Final = "http"

SHM: Final = "/dev/shm"  # noqa: S108 - a mount, not a temporary file
VOLUMES_PREFIX: Final = "plimsoll-"
SHM_VOLUME: Final = f"{VOLUMES_PREFIX}shm"
TMP: Final = "/tmp"  # noqa: S108 - a mount of the pod's own
TMP_VOLUME: Final = f"{VOLUMES_PREFIX}tmp"
CACHE: Final = "/cache"
CACHE_VOLUME: Final = f"{VOLUMES_PREFIX}cache"
WEIGHTS: Final = "/weights"
WEIGHTS_VOLUME: Final = f"{VOLUMES_PREFIX}weights"

OUR_MOUNTS: Final = (SHM, TMP, CACHE, WEIGHTS)
