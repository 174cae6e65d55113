"""GPUs and memory: what does not fit, what was asked for and is not used."""

from collections.abc import Iterator
from typing import Final

from plimsoll.core.audit.evidence import Evidence, shown_gib
from plimsoll.core.audit.rule import Group, Hit, Severity, rule
from plimsoll.core.workloads.candidates import OWN_KINDS
from plimsoll.core.workloads.server import Server

_TIGHT_REQUESTS: Final = 1.5
_TIGHT_SHARE: Final = 0.92
_USUAL_SHARE: Final = 0.9
_LARGEST_COMMON_BYTES: Final = 44 << 30


@rule(
    "does-not-fit",
    Group.START,
    Severity.ERROR,
    title="The engine refuses to start: it does not fit",
    why="vLLM checks at start that its flags, the model and the GPU go together, and that one request of max-model-len "
    "fits the KV cache. The planner does the same arithmetic (docs/memory.md).",
    fix="What the planner offers: a shorter context, more GPUs, fp8 KV cache, a quantised checkpoint.",
)
def does_not_fit(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The planner's own verdict."""
    found = evidence.prediction
    if found is None or found["outcome"] != "refused" or found["reason"] == "bad_flag":
        return
    fits = found.get("estimated_max_model_len")
    spare = f"--tensor-parallel-size {server.gpus} for the GPUs that are asked for" if _has_idle_gpus(server) else ""
    fix = ", or ".join(each for each in (f"--max-model-len {fits} fits" if fits else "", spare) if each) or None
    path = server.flag_field("max_model_len") if fits else server.flag_field("tensor_parallel_size")
    severity, group = (None, None) if evidence.surely_refused else (Severity.WARNING, Group.LOAD)
    near = "" if evidence.surely_refused else " (near the edge of what the planner can tell)"
    yield Hit(f"{server.model} on {server.product}: {found['message']}{near}", path, severity, fix, group)


def _has_idle_gpus(server: Server) -> bool:
    return server.ranks == 1 and server.gpus in {2, 4, 8} and not _over_nodes(server)


@rule(
    "barely-fits",
    Group.LOAD,
    Severity.WARNING,
    title="Almost no room for the KV cache",
    why="What weights and activations leave decides how many requests run at once. Near one request, everything queues "
    "behind the longest; and the next release or driver may need the last bytes.",
    fix="More GPUs, a shorter --max-model-len, --kv-cache-dtype fp8 or a quantised checkpoint.",
)
def barely_fits(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Starts, but hardly."""
    weights, room = _by_name(evidence)
    if _TIGHT_SHARE * room < weights <= room:
        said = f"almost no room for KV cache: weights ~{weights / 1e9:.0f} GB of ~{room / 1e9:.0f} GB"
        yield Hit(said, server.flag_field("tensor_parallel_size"))
    found = evidence.prediction
    if found is None or found["outcome"] != "starts":
        return
    pool, path = found["available_kv_bytes"], server.flag_field("max_model_len")
    if found["outcome_at_low"] == "refused":
        span = f"{shown_gib(pool['low'])} to {shown_gib(pool['high'])} a GPU"
        yield Hit(f"almost no room for KV cache: {span}, and at the low end it is refused: {found['message']}", path)
    elif (found["max_concurrency"] or 2) < _TIGHT_REQUESTS and server.arguments.get("max_model_len"):
        fit, tokens = found["max_concurrency"], found["kv_cache_size_tokens"]
        yield Hit(f"{fit:.1f} requests of full length fit at once ({tokens:,} tokens of KV cache)", path, Severity.NOTE)


@rule(
    "weights-exceed-gpus",
    Group.START,
    Severity.ERROR,
    title="The weights are larger than the GPUs",
    why="Weights must lie in GPU memory, split over the ranks of tensor and pipeline parallelism.",
    fix="More GPUs, larger ones, or a quantised checkpoint.",
)
def weights_exceed_gpus(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """By the size in the model's name, where no configuration is known."""
    weights, room = _by_name(evidence)
    if weights > room > 0:
        yield Hit(
            f"weights (~{weights / 1e9:.0f} GB by the model's name) exceed the GPU budget "
            f"(~{room / 1e9:.0f} GB of {server.ranks} × {server.product})",
            server.flag_field("tensor_parallel_size"),
        )


def _by_name(evidence: Evidence) -> tuple[float, float]:
    """(bytes of the weights, bytes that the GPUs may use) where only the model's name tells a size; else zeros."""
    server, gpu, weights = evidence.server, evidence.gpu, evidence.weight_bytes
    if evidence.prediction is not None or gpu is None or weights is None or not server.argv_known:
        return 0.0, 0.0
    if server.arguments.get("cpu_offload_gb") or server.candidate.nodes > 1:
        return 0.0, 0.0
    share = server.arguments.number("gpu_memory_utilization") or _USUAL_SHARE
    return weights, gpu.torch_total_bytes * share * server.ranks


@rule(
    "large-model-on-unnamed-gpus",
    Group.START,
    Severity.NOTE,
    title="A large model on GPUs that are not named",
    why="Without a node selector the pod runs on whatever GPU is free. Only cards of 80 GB and more hold these "
    "weights; on any other the start fails, and only sometimes.",
    fix="nodeSelector: {nvidia.com/gpu.product: …}, so that the pod waits for the right card.",
)
def large_model_on_unnamed_gpus(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Starts on some nodes only."""
    if server.product or not server.gpus or evidence.weight_bytes is None or server.other_device or server.on_cpu:
        return
    each = evidence.weight_bytes / max(server.ranks, 1)
    if each > _LARGEST_COMMON_BYTES and server.candidate.scope == "pod" and server.candidate.nodes == 1:
        size, gpus = evidence.weight_bytes / 1e9, f"{server.ranks} GPU{'s' if server.ranks > 1 else ''}"
        yield Hit(f"weights of ~{size:.0f} GB on {gpus} of unnamed type", server.pod_field("nodeSelector"))


@rule(
    "pipeline-on-one-node",
    Group.WASTE,
    Severity.NOTE,
    title="Pipeline parallelism within one node",
    why="Pipeline stages wait for one another: a request passes them in turn, so its latency does not fall with more "
    "GPUs. Within a node tensor parallelism uses all of them for every token.",
    fix="--tensor-parallel-size over all GPUs of the node, unless the model's heads do not divide by it.",
)
def pipeline_on_one_node(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Stages of one pod."""
    stages, width = (server.arguments.count(dest) for dest in ("pipeline_parallel_size", "tensor_parallel_size"))
    if stages > 1 and server.gpus and server.gpus >= stages * width and server.candidate.nodes == 1:
        path = server.flag_field("pipeline_parallel_size")
        yield Hit(f"PP {stages} × TP {width} on one {server.gpus}-GPU node", path)


@rule(
    "fewer-gpus-than-ranks",
    Group.START,
    Severity.ERROR,
    title="Fewer GPUs than parallelism",
    why="Tensor, pipeline and data parallelism need one GPU a rank. With fewer in the pod the engine refuses to "
    "start, or "
    "waits for ever for GPUs that Ray never finds.",
    fix="Ask for as many GPUs as --tensor-parallel-size × --pipeline-parallel-size × --data-parallel-size.",
)
def fewer_gpus_than_ranks(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Ranks without a GPU."""
    if not server.gpus or server.on_cpu or server.candidate.nodes > 1 or _over_nodes(server) or not server.argv_known:
        return
    if _device_without_count(server) or server.ranks <= server.gpus or _of_another_kind(server):
        return
    sizes = [(word, server.arguments.count(dest)) for word, dest in _SIZES if server.arguments.count(dest) > 1]
    shown = " × ".join(f"{word} {count}" for word, count in sizes)
    waits = (
        ": with Ray the engine waits for GPUs for ever"
        if server.arguments.text("distributed_executor_backend") == "ray"
        else ""
    )
    yield Hit(
        f"{shown} but {server.gpus} GPU{'s' if server.gpus > 1 else ''} requested{waits}",
        server.flag_field("tensor_parallel_size"),
    )


_SIZES: Final = (("TP", "tensor_parallel_size"), ("PP", "pipeline_parallel_size"), ("DP", "data_parallel_size"))


def _over_nodes(server: Server) -> bool:
    flags = ("nnodes", "data_parallel_size_local", "node_rank", "data_parallel_address", "data_parallel_hybrid_lb")
    return (
        any(server.arguments.get(dest) for dest in flags) or server.is_runtime or server.candidate.scope == "operator"
    )


def _of_another_kind(server: Server) -> bool:
    """Kinds that are not Kubernetes' own may spread the stages of one engine over pods."""
    spread = server.arguments.count("pipeline_parallel_size") > 1 or server.arguments.count("data_parallel_size") > 1
    return spread and server.kind not in OWN_KINDS


def _device_without_count(server: Server) -> bool:
    """Resources whose number is not one of devices: Neuron cores, shares."""
    return any("neuron" in name or "gpu-mem" in name or "/mig-" in name for name in server.accelerators)


@rule(
    "gpus-unused",
    Group.WASTE,
    Severity.WARNING,
    title="More GPUs than the engine uses",
    why="vLLM uses tensor × pipeline × data parallel GPUs; further ones are paid for and idle. Under time slicing "
    "several "
    '"GPUs" are shares of one card, without memory of their own: two shares are no more than one.',
    fix="Raise --tensor-parallel-size, or ask for fewer GPUs.",
)
def gpus_unused(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Asked for and idle."""
    if not server.gpus or not server.argv_known or server.candidate.nodes > 1 or _over_nodes(server):
        return
    if server.companions:
        return  # they share the GPUs in a way that the words do not tell
    if any(word in " ".join(server.launch.argv or ()) for word in ("$", "{{")) or _device_without_count(server):
        return
    if server.gpus > server.ranks and not server.on_cpu and server.other_device in {None, "rocm"}:
        yield Hit(
            f"{server.gpus} GPUs requested, TP {server.ranks} uses {server.ranks}: {server.gpus - server.ranks} "
            "idle, or shares of a "
            "time-sliced GPU counted as GPUs (memory not isolated)",
            server.field("resources"),
        )


@rule(
    "no-gpu-requested",
    Group.START,
    Severity.ERROR,
    title="No GPU requested",
    why="Without a resource such as nvidia.com/gpu the device plugin gives the container no GPU; where the runtime "
    "shows "
    "all of them anyway, the pod takes one that belongs to another.",
    fix="resources.limits: {nvidia.com/gpu: 1}.",
)
def no_gpu_requested(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A CUDA image without a GPU."""
    if server.asks_for_devices or server.on_cpu or server.is_runtime or not server.candidate.given:
        return
    if server.image is None or not server.image.is_vllm or server.other_device or not _says_resources(server):
        return
    visible = server.variables.keys() & {"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}
    certain = server.candidate.scope == "pod" and server.image.for_cuda and not visible
    yield Hit(
        "no accelerator requested: a GPU image without a GPU resource fails unless the cluster patches it",
        server.field("resources"),
        None if certain else Severity.WARNING,
    )


def _says_resources(server: Server) -> bool:
    """Whether what the pod asks for is in the manifest: of a chart's values only where they have resources."""
    scope = server.candidate.scope
    return scope == "pod" or (scope == "values" and "resources" in server.container)


@rule(
    "cpu-settings-on-gpu-image",
    Group.START,
    Severity.ERROR,
    title="CPU settings on a GPU image",
    why="vLLM's CPU backend is another build: the CUDA image does not run without a GPU, and ignores VLLM_CPU_* "
    "variables.",
    fix="Use an image built for CPUs, or remove the CPU settings and ask for a GPU.",
)
def cpu_settings_on_gpu_image(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The CUDA image told to run on CPUs."""
    if server.image is None or not server.image.for_cuda:
        return
    if server.arguments.text("device") == "cpu":
        yield Hit("--device cpu on the CUDA image: will not run", server.flag_field("device"))
    elif not server.asks_for_devices and any(name.startswith("VLLM_CPU_") for name in server.variables):
        name = next(name for name in server.variables if name.startswith("VLLM_CPU_"))
        yield Hit(f"{name} on the CUDA image: will not run on a CPU", server.field(server.variables[name].place))


@rule(
    "mixed-devices",
    Group.START,
    Severity.WARNING,
    title="Settings of another device than the image's",
    why="Variables of one vendor's runtime do nothing in another vendor's image: image or settings are the wrong ones.",
    fix="Take image and settings of the same device.",
)
def mixed_devices(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Gaudi settings on an XPU image and the like."""
    device = server.other_device
    gaudi = [name for name in server.variables if name.startswith(("PT_HPU_", "HABANA_"))]
    if (
        gaudi
        and server.image is not None
        and device in {None, "xpu", "rocm", "cpu", "neuron", "tpu"}
        and server.image.is_vllm
    ):
        if device is None and not server.image.for_cuda:
            return
        yield Hit(
            f"{(device or 'CUDA').upper()} image with Gaudi settings ({gaudi[0]})",
            server.field(server.variables[gaudi[0]].place),
        )


@rule(
    "kv-dtype-unsupported",
    Group.WASTE,
    Severity.WARNING,
    title="fp8 KV cache on a GPU without fp8",
    why="Ampere and older cards have no fp8 arithmetic: values are converted at every step, several attention backends "
    "refuse the type, and the gain in capacity is paid with speed.",
    fix="--kv-cache-dtype auto on such cards, or a GPU from Ada or Hopper on.",
)
def kv_dtype_unsupported(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """No hardware for the type."""
    dtype, gpu = server.arguments.text("kv_cache_dtype") or "", evidence.gpu
    if dtype.startswith("fp8") and gpu is not None and gpu.vendor == "nvidia" and not gpu.supports("fp8"):
        yield Hit(f"fp8 KV cache on {server.product} (no fp8 hardware)", server.flag_field("kv_cache_dtype"))
