"""Flags of ``vllm serve`` that decide how much memory is left for KV, beside those that shape the cache itself."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MemoryFlags:
    """None leaves the choice to vLLM. Sizes are bytes on one GPU.

    ``whole_encoders``: each rank holds all of a vision tower, for other requests (``--mm-encoder-tp-mode data``);
    ``unprofiled_encoders``: the start does not run it (``--skip-mm-profiling``).
    ``other_engines_bytes`` is what other processes hold on the same GPU when this engine starts.
    """

    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    quantization: str | None = None
    enforce_eager: bool = False
    max_cudagraph_capture_size: int | None = None
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    expert_parallel: bool = False
    data_parallel: int = 1
    cpu_offload_bytes: int = 0
    pooling: bool = False
    whole_encoders: bool = False
    unprofiled_encoders: bool = False
    max_loras: int = 0
    max_lora_rank: int = 16
    other_engines_bytes: int = 0
