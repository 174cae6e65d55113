"""The engine's container as everybody must know it: its name, its port, the volumes and paths that are ours."""

from typing import Final

CONTAINER: Final = "vllm"
HTTP_PORT: Final = 8000
HTTP_PORT_NAME: Final = "http"

SHM: Final = "/dev/shm"  # noqa: S108 - a mount, not a temporary file
SHM_VOLUME: Final = "plimsoll-shm"
TMP: Final = "/tmp"  # noqa: S108 - a mount of the pod's own
TMP_VOLUME: Final = "plimsoll-tmp"
CACHE: Final = "/cache"
CACHE_VOLUME: Final = "plimsoll-cache"
WEIGHTS: Final = "/weights"
WEIGHTS_VOLUME: Final = "plimsoll-weights"

OUR_MOUNTS: Final = (SHM, TMP, CACHE, WEIGHTS)
OUR_VOLUMES: Final = (SHM_VOLUME, TMP_VOLUME, CACHE_VOLUME, WEIGHTS_VOLUME)
