"""Why engines fail: the words by which each cause is known, and what may be done about it without a human.

The order decides: a log often names several, and the first row found is the root. What stands between two words is
bounded: whoever makes the log must not be able to hold up the operator. Sources: refusals recorded from
vLLM 0.10 to 0.32, vLLM's, torch's, NCCL's and huggingface_hub's own messages.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from plimsoll.api import engine_reasons as engine
from plimsoll.api import reasons
from plimsoll.api.reason import Reason

Remedy = Literal["replan", "wait", "human"]
"""``replan``: once, with the engine's figures. ``wait``: it may pass, the kubelet tries again. ``human``: it stays."""


@dataclass(frozen=True)
class Cause:
    """One way to fail; ``pattern`` names its figures (``_gib``, ``_size`` with a unit, or plain numbers)."""

    reason: Reason
    remedy: Remedy
    pattern: re.Pattern[str]

    @property
    def word(self) -> str:
        """The reason as `plimsoll predict` and `check-log` print it."""
        return _WORD.sub("_", self.reason.name).lower()


_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_GIB: Final = r"-?[\d.]+"
_SIZE: Final = r"-?[\d.]+ (?:[KMGT]iB|bytes)"


def _rows() -> Iterator[tuple[Reason, Remedy, str]]:
    yield (
        reasons.KV_CACHE_TOO_SMALL, "replan",
        rf"max seq len \((?P<max_model_len>\d+)\), \(?(?P<needed_gib>{_GIB}) GiB KV cache is needed, which is larger "
        rf"than the available KV cache memory \((?P<available_gib>{_GIB}) GiB\)"
        r"(?:.{0,60}estimated maximum model length is (?P<estimated_max_model_len>\d+))?",
    )  # fmt: skip
    yield (
        reasons.KV_CACHE_TOO_SMALL, "replan",
        r"max seq len \((?P<max_model_len>\d+)\) is larger than the maximum number of tokens that can be stored in "
        r"KV cache \((?P<estimated_max_model_len>\d+)\)",
    )  # fmt: skip
    yield reasons.NO_MEMORY_FOR_KV, "replan", r"No available memory for the cache blocks"
    yield (
        reasons.MAX_NUM_SEQS_ABOVE_STATE_BLOCKS, "replan",
        r"max_num_seqs \((?P<max_num_seqs>\d+)\) exceeds available Mamba cache blocks \((?P<state_blocks>\d+)\)",
    )  # fmt: skip
    yield (
        reasons.NOT_ENOUGH_FREE_MEMORY, "wait",
        rf"Free memory on device[^()]{{0,80}}\((?P<free_gib>{_GIB})/(?P<total_gib>{_GIB}) GiB\) on startup is "
        rf"less than desired GPU memory utilization \((?P<utilisation>[\d.]+), (?P<requested_gib>{_GIB}) GiB\)",
    )  # fmt: skip
    yield reasons.NOT_ENOUGH_FREE_MEMORY, "wait", r"Error in memory profiling\. Initial free memory"
    yield engine.SHARED_MEMORY_TOO_SMALL, "human", (
        r"(?:creating|attaching|extend|open).{0,40}shared memory.{0,200}(?:/dev/shm|No space left|\bshm\b)|"
        r"insufficient shared memory|No space left on device.{0,200}shm|shm.{0,200}No space left on "
        r"device|[Bb]us error"
    )  # fmt: skip
    yield (
        engine.GPU_OUT_OF_MEMORY, "replan",
        rf"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate (?P<tried_size>{_SIZE})"
        rf"(?:.{{0,60}}total capac\w+ of (?P<total_size>{_SIZE}) of which (?P<free_size>{_SIZE}) is free)?",
    )  # fmt: skip
    yield (
        engine.GPU_OUT_OF_MEMORY, "replan",
        rf"(?:CUDA|HIP|XPU) out of memory(?:.{{0,60}}total capac\w+ of (?P<total_size>{_SIZE}) of which "
        rf"(?P<free_size>{_SIZE}) is free)?|(?:CUDA|HIP) error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|"
        r"cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|torch(?:\.cuda)?\.OutOfMemoryError|"
        r"Cuda failure '?2?'? ?'?out of memory",
    )  # fmt: skip
    yield engine.HOST_OUT_OF_MEMORY, "human", (
        r"^\s*MemoryError\b|[Cc]annot allocate memory|DefaultCPUAllocator: (?:can't|not enough)|"
        r"^\s*numpy\S*MemoryError|Unable to allocate .* for an array"
    )  # fmt: skip
    yield reasons.BAD_FLAG, "human", (
        r"error: unrecognized arguments: (?:.+)|error: argument \S+: |error: the following arguments are required|"
        r"error: ambiguous option"
    )  # fmt: skip
    yield reasons.HEADS_NOT_DIVISIBLE, "human", (
        r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<ranks>\d+)\)|"
        r"^\s*AssertionError: \d+ is not divisible by \d+"
    )  # fmt: skip
    yield (
        reasons.MAX_MODEL_LEN_ABOVE_MODEL, "human",
        r"User-specified max_model_len \((?P<max_model_len>\d+)\) is greater than the derived max_model_len "
        r"\(\w+=(?P<model_limit>\d+)",
    )  # fmt: skip
    yield reasons.KV_DTYPE_UNSUPPORTED, "replan", (
        r"kv_cache_dtype not supported|kv-cache is not supported with fp8 checkpoints|FP8 KV cache is not supported|"
        r"fp8e4(?:nv|b15|b8) (?:data type is )?not supported|Unsupported (?:data type of kv cache|kv.?cache.?dtype)|"
        r"(?:does not support|doesn't support|not support(?:ed)?.{0,20}) (?:fp8 )?kv[ _-]?cache"
    )  # fmt: skip
    yield reasons.NO_ATTENTION_BACKEND, "human", (
        r"No valid attention backend|Selected backend \S+ is not valid for this configuration|"
        r"[Nn]o valid MLA attention backend|No common block size for \d+"
    )  # fmt: skip
    yield reasons.QUANTIZATION_UNSUPPORTED, "human", (
        r"quantization method .{1,60} is not supported for the current GPU|Unknown quantization method|"
        r"[Qq]uantization method specified in the model config .{0,80} does not match"
    )  # fmt: skip
    yield reasons.DTYPE_UNSUPPORTED, "human", r"Bfloat16 is only supported on GPUs with compute capability"
    yield engine.DRIVER_TOO_OLD, "human", (
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|"
        r"forward compatibility was attempted|unsupported display driver|cudaErrorInsufficientDriver|"
        r"unsatisfied condition: (?:cuda|driver)|provided PTX was compiled with an unsupported toolchain"
    )  # fmt: skip
    yield engine.GPU_UNSUPPORTED, "human", r"no kernel image is available|CUDA error: invalid device function"
    yield engine.NO_GPU_VISIBLE, "human", (
        r"No CUDA GPUs are available|Failed to infer device type|Found no NVIDIA driver|no CUDA-capable device|"
        r"World size \((?P<ranks>\d+)\) is larger than the number of available GPUs \((?P<visible>\d+)\)|"
        r"Error 802: system not yet initialized|libcuda\.so\S*: cannot open|NVML: (?:Driver Not Loaded|Unknown Error)"
    )  # fmt: skip
    yield engine.GPU_FAULT, "wait", (
        r"illegal memory access|[Uu]ncorrectable (?:ECC|NVLink)|unspecified launch failure|device-side assert|"
        r"GPU is lost|fallen off the bus|CUDA error: (?:misaligned|hardware)|NVRM: Xid"
    )  # fmt: skip
    yield engine.NCCL_FAILED, "wait", (
        r"NCCL (?:error|WARN .{0,300}(?:fail|[Ee]rror))|nccl(?:SystemError|UnhandledCudaError|InternalError|"
        r"RemoteError|InvalidUsage)|DistBackendError|DistNetworkError|DistStoreError|Gloo connectFullMesh failed|"
        r"Timed out after \d+ seconds waiting for clients"
    )  # fmt: skip
    yield engine.MODEL_ACCESS_DENIED, "human", (
        r"GatedRepoError|gated repo|Access to model .{1,200} is restricted|Cannot access gated|"
        r"40[13] Client Error|Invalid (?:user(?:name or password)?|credentials).{0,20}(?:token|Authorization|password)|"
        r"restricted and you are not in the authorized list"
    )  # fmt: skip
    yield (
        engine.REMOTE_CODE_NEEDED,
        "human",
        (
            r"custom code which must be executed|requires you to execute|"
            r"(?:option|argument|set|pass|use) `?(?:--)?trust[_-]remote[_-]code(?:=True)?`?"
        ),  # fmt: skip,
    )
    yield engine.MODEL_TOO_NEW, "human", (
        r"does not recognize this architecture|Model architectures? .{1,200} (?:are|is) not supported|"
        r"has no vLLM implementation|Tokenizer class \S+ does not exist|did not match any variant of untagged enum|"
        r"failed to be inspected|Transformers version .{0,40} (?:older|required|>=)|"
        r"(?:requires|needs) (?:a newer )?transformers"
    )  # fmt: skip
    yield engine.HUB_UNREACHABLE, "wait", (
        r"couldn't connect to 'https?://|LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been "
        r"disabled|Failed to resolve '|Temporary failure in name resolution|Name or service not known|"
        r"Max retries exceeded with url|(?:429|5\d\d) (?:Client|Server) Error|Cannot reach https?://"
    )  # fmt: skip
    yield engine.WEIGHTS_MISSING, "human", (
        r"RepositoryNotFoundError|RevisionNotFoundError|EntryNotFoundError|404 Client Error|HFValidationError|"
        r"Repo id must be in the form|Cannot find any model weights|does not appear to have a file named|"
        r"is not a local folder and is not a valid model identifier|Invalid repository ID or local directory|"
        r"Can't load the (?:configuration|model|tokenizer)|"
        r"Error no file named|Can't find .{0,40}config|No such file or directory: .{0,300}(?:safetensors|\.bin|\.json|"
        r"\.model)|deserializing header|SafetensorError|weights were not initialized from checkpoint|"
        r"FileNotFoundError: .{0,200}(?:safetensors|\.bin|config)"
    )  # fmt: skip
    yield engine.NO_ROOM_ON_DISK, "human", (
        r"No space left on device|[Dd]isk quota exceeded|Read-only file system|"
        r"PermissionError: \[Errno 13\] Permission denied: '[^']+'"
    )  # fmt: skip
    # What pydantic refuses: after the causes that it wraps.
    yield reasons.BAD_FLAG, "human", (
        r"^\s*Input should be .{0,300}\[type=|^\s*Value error, .{0,1000}\[type=value_error|"
        r"GPU memory utilization must be less than|^\s*Unexpected keyword argument .{0,300}\[type="
    )  # fmt: skip


CAUSES: Final = tuple(Cause(reason, remedy, re.compile(words)) for reason, remedy, words in _rows())
UNEXPLAINED: Final = Cause(engine.ENGINE_DIED, "wait", re.compile(r"(?!)"))
"""The engine ended and no row says why."""
HOST_MEMORY: Final = next(cause for cause in CAUSES if cause.reason is engine.HOST_OUT_OF_MEMORY)
"""What a kubelet reports as OOMKilled; the log then says nothing."""
