"""Environment variables of an engine that the arithmetic or the roll-out depends on.

Names are vLLM's own (``vllm/envs.py`` of the recorded releases; ``docs/pods.md`` says why each is refused).
"""

from collections.abc import Mapping
from typing import Final

REFUSED: Final[Mapping[str, str]] = {
    "VLLM_USE_V1": "the engine's generation decides how memory is planned",
    "VLLM_ATTENTION_BACKEND": "use --attention-backend in engine.extraArgs (ignored after 0.14)",
    "VLLM_MLA_DISABLE": "it changes what a token of KV cache takes",
    "VLLM_PP_LAYER_PARTITION": "it changes which GPU holds which layers",
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "it changes how much memory is left for the KV cache",
    "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": "it changes how much memory is left for the KV cache",
    "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": "it changes what a token of KV cache takes",
    "VLLM_CPU_KVCACHE_SPACE": "the KV cache is on the GPU",
    "VLLM_TARGET_DEVICE": "the engine runs on the GPU",
    "VLLM_MODEL_REDIRECT_PATH": "another model than the planned one would be loaded: set spec.model",
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "a dead engine must end its process, so that the pod is restarted",
    "VLLM_SERVER_DEV_MODE": "it opens control endpoints that ask for no key",
}
_REFUSED_PREFIXES: Final[Mapping[str, str]] = {"VLLM_DP_": "the roll-out numbers the engines"}
REFUSED_EVERYWHERE: Final[Mapping[str, str]] = {
    "NVIDIA_VISIBLE_DEVICES": "it reaches GPUs that belong to other pods",
    "CUDA_VISIBLE_DEVICES": "the device plugin decides which GPUs a pod sees",
}
_MOVES_MEMORY: Final = frozenset({"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})
_HARMLESS: Final = (
    "VLLM_LOGGING_", "VLLM_LOG_", "VLLM_CONFIGURE_LOGGING", "VLLM_API_KEY", "VLLM_NO_USAGE_STATS", "VLLM_DO_NOT_TRACK",
    "VLLM_USAGE_", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_ASSETS_CACHE", "VLLM_HOST_IP", "VLLM_PORT", "VLLM_RPC_",
    "VLLM_USE_MODELSCOPE", "VLLM_IMAGE_FETCH_", "VLLM_VIDEO_FETCH_", "VLLM_AUDIO_FETCH_", "VLLM_HTTP_", "VLLM_TRACE_",
    "VLLM_MEDIA_", "VLLM_PLUGINS", "VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS",
)  # fmt: skip


def why_refused(name: str, *, engine: bool) -> str | None:
    """Why a container may not have the variable, None when it may. ``engine``: whether it is the engine's."""
    if name in REFUSED_EVERYWHERE:
        return REFUSED_EVERYWHERE[name]
    if not engine:
        return None
    prefixed = next((why for prefix, why in _REFUSED_PREFIXES.items() if name.startswith(prefix)), None)
    return REFUSED.get(name) or prefixed


def is_outside_arithmetic(name: str) -> bool:
    """Whether the variable may change memory or speed in ways that no plan knows: of vLLM's, all but the harmless."""
    return name in _MOVES_MEMORY or (name.startswith("VLLM_") and not name.startswith(_HARMLESS))
