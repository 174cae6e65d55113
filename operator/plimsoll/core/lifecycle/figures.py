"""What a plan says about its pods, as values."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Startup:
    """From a container's start to its first request: an estimate on the slow side, and what follows from it.

    ``probe_seconds`` is the start-up probe's budget; ``deadline_seconds`` adds the pull of images and the scheduling.
    """

    seconds: int
    fetch_seconds: int
    read_seconds: int
    process_seconds: int
    compile_seconds: int
    capture_seconds: int
    probe_seconds: int
    deadline_seconds: int
    basis: str


@dataclass(frozen=True)
class Drain:
    """How a pod ends: endpoints leave, requests in flight finish, and only then it is killed."""

    pre_stop_seconds: int
    timeout_seconds: int
    grace_seconds: int
    basis: str


@dataclass(frozen=True)
class Host:
    """What a pod takes of its host beside GPUs; shared memory is part of its memory.

    ``exclusive_volume``: it mounts a volume that no second pod, or none on another node, may mount meanwhile.
    """

    memory_bytes: int
    cpu_cores: int
    shared_memory_bytes: int
    exclusive_volume: bool = False
