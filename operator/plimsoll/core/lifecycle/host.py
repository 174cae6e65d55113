"""What a pod takes of its host beside GPUs: memory, CPU cores, shared memory."""

from dataclasses import dataclass
from typing import Final

from plimsoll.core.lifecycle.figures import Host

GIB: Final = 1 << 30

BASE_BYTES: Final = 6 * GIB
"""API server, engine core and the first rank: Python with torch, tokenizer, CUDA's own, buffers of the loader."""
RANK_BYTES: Final = 2 * GIB
"""Each rank: a CUDA context, pinned staging of its inputs and of the weights' shards while they load."""
IMAGE_CACHE_BYTES: Final = 4 * GIB
"""``--mm-processor-cache-gb``, which an API server and every engine keep for themselves (vLLM's own documentation)."""
SHM_BYTES_PER_GPU: Final = 2 * GIB
"""NCCL and the queues between ranks; the runtime's default of 64 MiB ends a tensor-parallel start (A45)."""
_TOKEN_ID_BYTES: Final = 4


@dataclass(frozen=True)
class HostLoad:
    """What one pod runs: ``ranks`` GPUs, ``engines`` of them data-parallel, one API server unless more are asked."""

    ranks: int
    engines: int
    sequences: int
    context_tokens: int
    images: bool
    offloaded_bytes: int = 0
    api_servers: int = 1
    image_cache_bytes: int = IMAGE_CACHE_BYTES
    shared_memory_bytes: int | None = None
    exclusive_volume: bool = False


def host(load: HostLoad) -> Host:
    """Requests of the pod. Shared memory is memory: it is charged to the pod, so it is part of the figure.

    A core for each process that spins: API servers, engine cores, ranks (vLLM's documentation asks for 2 + GPUs).
    """
    shared = SHM_BYTES_PER_GPU * load.ranks if load.shared_memory_bytes is None else load.shared_memory_bytes
    ids = load.sequences * load.context_tokens * _TOKEN_ID_BYTES * load.engines
    caches = load.image_cache_bytes * (load.api_servers + load.engines) if load.images else 0
    memory = BASE_BYTES + RANK_BYTES * load.ranks + ids + caches + load.offloaded_bytes + shared
    return Host(
        memory_bytes=-(-memory // GIB) * GIB,
        cpu_cores=load.api_servers + load.engines + load.ranks,
        shared_memory_bytes=shared,
        exclusive_volume=load.exclusive_volume,
    )
