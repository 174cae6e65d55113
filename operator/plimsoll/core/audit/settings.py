"""Settings of the engine: those that leave no room, waste a card, or have no effect."""

from collections.abc import Iterator
from typing import Final

from plimsoll.core.audit.evidence import Evidence, shown_gib
from plimsoll.core.audit.rule import Group, Hit, Severity, rule
from plimsoll.core.workloads.server import Server
from plimsoll.facts.model_names import first_release_of

_HIGH: Final = 0.95
_LOW: Final = 0.5
_ITS_OWN: Final = ": the model's own limit decides"
_MANY_SEQUENCES: Final = 512
_SMALL_GPU_BYTES: Final = 30 << 30


@rule(
    "utilisation-too-high",
    Group.LOAD,
    Severity.WARNING,
    title="gpu-memory-utilization of 0.95 or more",
    why="The rest of the card is all that CUDA contexts, graphs, fragmentation and peaks after profiling have. At "
    "0.95 of "
    "80 GB that is 4 GB: an out-of-memory error under load ends every request of the engine.",
    fix="0.90 to 0.92, or --kv-cache-memory-bytes for an exact pool.",
)
def utilisation_too_high(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Little head-room beside the pool."""
    share = server.arguments.number("gpu_memory_utilization")
    if share is None or share < _HIGH:
        return
    rest = (
        f": {shown_gib((1 - share) * evidence.gpu.torch_total_bytes)} of {server.product} are left"
        if evidence.gpu and share <= 1
        else ""
    )
    word = "too high" if share >= 0.97 else "leaves little headroom"  # noqa: PLR2004
    fatal = Severity.ERROR if share > 1 else None
    yield Hit(f"gpu-memory-utilization {share:g} {word}{rest}", server.flag_field("gpu_memory_utilization"), fatal)


@rule(
    "utilisation-low",
    Group.WASTE,
    Severity.NOTE,
    title="gpu-memory-utilization of 0.5 or less",
    why="Half of the card's memory or more stays empty, unless another process uses it that the manifest does not "
    "show; and "
    "nothing keeps that one within its part.",
    fix="Give the engine the whole card, or a MIG slice of the size it needs.",
)
def utilisation_low(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Empty, or shared without a limit."""
    share = server.arguments.number("gpu_memory_utilization")
    if share is not None and share <= _LOW and not server.arguments.get("kv_cache_memory_bytes") and not server.on_cpu:
        idle = f" ({shown_gib((1 - share) * evidence.gpu.torch_total_bytes)} a GPU unused)" if evidence.gpu else ""
        yield Hit(
            f"gpu-memory-utilization {share:g}{idle}: GPU shared with something the file does not show, without any "
            "limit, or wasted",
            server.flag_field("gpu_memory_utilization"),
        )


@rule(
    "two-pool-sizes",
    Group.UPGRADE,
    Severity.NOTE,
    title="Utilisation and KV bytes both set",
    why="--kv-cache-memory-bytes replaces the pool that follows from --gpu-memory-utilization: one of the two is "
    "ignored.",
    fix="Keep --kv-cache-memory-bytes, which is exact, and remove the other.",
)
def two_pool_sizes(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """One of them has no effect."""
    if server.arguments.get("kv_cache_memory_bytes") and server.arguments.get("gpu_memory_utilization"):
        yield Hit(
            "gpu-memory-utilization and --kv-cache-memory-bytes both set: one is ignored",
            server.flag_field("gpu_memory_utilization"),
        )


@rule(
    "no-max-model-len",
    Group.LOAD,
    Severity.WARNING,
    title="No --max-model-len",
    why="vLLM then takes the model's own limit, often 128k tokens or more: the start fails where one such request "
    "does not "
    "fit the KV cache, and where it does, one client may take the whole cache. A new revision of the model changes it.",
    fix="--max-model-len with the longest request that you mean to serve.",
)
def no_max_model_len(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The model decides."""
    if (
        not server.argv_known
        or server.arguments.get("max_model_len")
        or server.launch.why_unknown
        or not server.candidate.given
    ):
        return
    if server.arguments.get("hf_overrides") and "max_position_embeddings" in str(server.arguments.get("hf_overrides")):
        return
    found = evidence.prediction
    then = ""
    if found is not None and found["outcome"] == "starts" and found.get("kv_cache_size_tokens"):
        tokens, fit = found["kv_cache_size_tokens"], found["max_concurrency"]
        then = f": the pool holds {tokens:,} tokens, {fit:.1f} requests of the model's full length"
    yield Hit(f"no max-model-len{then or _ITS_OWN}", server.candidate.path)


@rule(
    "sequences-do-not-suit",
    Group.WASTE,
    Severity.NOTE,
    title="A sequence cap that does not suit the GPUs",
    why="--max-num-seqs caps the requests that run at once: 1 leaves a GPU idle between tokens, hundreds on a small "
    "card "
    "only preempt one another.",
    fix="Leave it out, or take what plimsoll plan prints.",
)
def sequences_do_not_suit(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Far too few, or far too many."""
    cap = server.arguments.number("max_num_seqs")
    if cap is None or server.on_cpu:
        return
    if cap <= 1 and (server.gpus or 0) >= 1:
        yield Hit(
            f"max-num-seqs {cap:.0f} on {server.gpus} GPU{'s' if server.gpus != 1 else ''}: one request at a time",
            server.flag_field("max_num_seqs"),
        )
    elif cap >= _MANY_SEQUENCES and evidence.gpu and evidence.gpu.torch_total_bytes < _SMALL_GPU_BYTES:
        yield Hit(f"max-num-seqs {cap:.0f} on {server.product}", server.flag_field("max_num_seqs"))


@rule(
    "enforce-eager",
    Group.WASTE,
    Severity.NOTE,
    title="CUDA graphs switched off",
    why="--enforce-eager launches every kernel of every layer by itself: decoding of small batches is up to several "
    "times "
    "slower. It saves a minute of start and a GiB or so.",
    fix="Remove it, unless the GPU is too small for graphs.",
)
def enforce_eager(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Slower decoding on every step."""
    if not server.arguments.on("enforce_eager") or server.on_cpu:
        return
    if server.whole_pod and not server.asks_for_devices and not server.is_runtime:
        return
    yield Hit(
        "enforce-eager switches CUDA graphs off: slower decoding for a faster start", server.flag_field("enforce_eager")
    )


@rule(
    "slow-quantisation-kernel",
    Group.WASTE,
    Severity.NOTE,
    title="A slow kernel asked for by name",
    why="--quantization awq or gptq names the old kernel; left out, vLLM takes the Marlin one wherever the GPU can.",
    fix="Remove --quantization: the checkpoint says what it is.",
)
def slow_quantisation_kernel(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The old kernel in place of Marlin."""
    name, gpu = server.arguments.text("quantization"), evidence.gpu
    if name in {"awq", "gptq"} and gpu is not None and gpu.vendor == "nvidia" and gpu.at_least(8):
        yield Hit(f"{name} kernel in place of {name}_marlin", server.flag_field("quantization"))


@rule(
    "adapters-without-lora",
    Group.UPGRADE,
    Severity.NOTE,
    title="LoRA settings without --enable-lora",
    why="Without --enable-lora the other LoRA flags have no effect, and requests for an adapter fail.",
    fix="Add --enable-lora, or remove the others.",
)
def adapters_without_lora(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Settings without effect."""
    named = next(
        (d for d in ("max_loras", "max_lora_rank", "lora_modules", "max_cpu_loras") if server.arguments.get(d)), None
    )
    if named and not server.arguments.on("enable_lora"):
        yield Hit(f"{named} without --enable-lora", server.flag_field(named))


@rule(
    "gguf-without-tokenizer",
    Group.LOAD,
    Severity.NOTE,
    title="GGUF file without --tokenizer",
    why="The tokenizer is then converted from the file, which is slow and for some models wrong.",
    fix="--tokenizer with the original model's repository.",
)
def gguf_without_tokenizer(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Converted from the file."""
    if server.model_known and (server.model or "").lower().endswith(".gguf") and not server.arguments.get("tokenizer"):
        yield Hit("GGUF without --tokenizer", server.flag_field("model"))


@rule(
    "model-newer-than-engine",
    Group.START,
    Severity.ERROR,
    title="A model newer than the pinned engine",
    why='A release knows the architectures of its time. A newer one is refused at start: "model architectures … are '
    'not supported".',
    fix="An engine release from the model's time on.",
)
def model_newer_than_engine(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The architecture came later than the release."""
    if server.release is None or not server.model_known or not (server.image and server.image.is_vllm):
        return
    since = first_release_of(server.model or "")
    if since is not None and server.release < since and server.arguments.text("model_impl") is None:
        first = f"{since[0]}.{since[1]}"
        yield Hit(
            f"model architecture newer than vLLM {server.release_text}: {server.model} is known from about {first} on",
            server.flag_field("model"),
        )
