"""What vLLM's planner makes of a model: `planner.py GPU < cases.jsonl > rows.jsonl`. Engine's Python, no GPU.

GPU is `{"name", "capability", "memory_bytes", "triton"}`, a case `{"model_folder", "tp", "kv_cache_dtype",
"extra_args", "available_bytes", "lengths"}`. Arguments become vLLM's own configuration, the model is built on torch's
meta device, each layer says what cache it needs, and vLLM's own code groups them and counts blocks. A fork a case: a
case never sees another. What one had to import its parent imports before the next.
"""

import contextlib
import copy
import importlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pretended_gpu

GPU = json.loads(sys.argv[1])
pretended_gpu.pretend(GPU["name"], tuple(GPU["capability"]), GPU["memory_bytes"], GPU["triton"])

import torch
from torch.overrides import TorchFunctionMode
from vllm.config import set_current_vllm_config
from vllm.config.vllm import get_layers_from_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import registry
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import AttentionSpec, UniformTypeKVCacheSpecs
from vllm.v1.worker.utils import customize_attention_spec
from vllm.v1.worker.workspace import init_workspace_manager

CASE_SECONDS = 300
GIB = 1 << 30
DIGITS = 6
# Looking at a model's class in a process of its own would cost a full import each time.
registry._run_in_subprocess = lambda work: work()


class OnMeta(TorchFunctionMode):
    """Sends what names a GPU to the meta device, which holds shapes and no bytes."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if _on_gpu(kwargs.get("device")):
            kwargs["device"] = torch.device("meta")
        if name == "cuda":
            return args[0].to("meta")
        if name == "to" and len(args) > 1 and _on_gpu(args[1]):
            args = (args[0], torch.device("meta"), *args[2:])
        return function(*args, **kwargs)


def _on_gpu(device):
    kind = device.type if isinstance(device, torch.device) else device
    return isinstance(kind, int) or (isinstance(kind, str) and kind.startswith("cuda"))


def configured(case):
    """VLLM's own configuration of the case, as its server makes it."""
    arguments = EngineArgs(
        model=case["model_folder"], load_format="dummy", skip_tokenizer_init=True, enforce_eager=True,
        disable_log_stats=True, distributed_executor_backend="mp", tensor_parallel_size=case["tp"],
        kv_cache_dtype=case["kv_cache_dtype"], **case["extra_args"],
    )  # fmt: skip
    return arguments.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def place(config, stage):
    """Be the first rank of that pipeline stage, among as many others as the configuration has."""
    parallel = config.parallel_config
    if parallel_state._WORLD is None:
        with set_current_vllm_config(config), tempfile.TemporaryDirectory() as folder:
            parallel_state.init_distributed_environment(
                world_size=1, rank=0, local_rank=0, distributed_init_method=f"file://{folder}/store", backend="gloo"
            )
            parallel_state.initialize_model_parallel(1, 1, backend="gloo")
            with contextlib.suppress(RuntimeError):
                init_workspace_manager(torch.device("meta"))
    for group, size, rank in (
        (parallel_state.get_tp_group(), parallel.tensor_parallel_size, 0),
        (parallel_state.get_pp_group(), parallel.pipeline_parallel_size, stage),
        (parallel_state.get_dcp_group(), parallel.decode_context_parallel_size, 0),
    ):
        group.world_size, group.rank_in_group, group.rank, group.ranks = size, rank, rank, list(range(size))


def build(config):
    """The model of this rank, without a byte of weights."""
    meta = torch.device("meta")
    with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype), meta, OnMeta():
        return initialize_model(vllm_config=config)


class Rank:
    """One rank's layers: what each needs, whose cache it shares, which backends compute it."""

    def __init__(self, config):
        self.specs, self.shared, self.backends = {}, 0, []
        type(current_platform).update_block_size_for_backend(config)
        register_all_kvcache_specs(config)
        for name, layer in get_layers_from_vllm_config(config, AttentionLayerBase).items():
            self._add(config, name, layer)

    def _add(self, config, name, layer):
        backend = None
        with contextlib.suppress(Exception):
            backend = layer.get_attn_backend()
        if backend is not None and backend not in self.backends:
            self.backends.append(backend)
        if getattr(layer, "kv_sharing_target_layer_name", None):
            self.shared += 1
            return
        spec = layer.get_kv_cache_spec(config)
        if spec:
            attention = isinstance(spec, AttentionSpec)
            self.specs[name] = customize_attention_spec(layer.get_attn_backend(), spec) if attention else spec


def weight_bytes(model):
    """Bytes of parameters and buffers, each once."""
    tensors = {id(each): each for each in (*model.parameters(), *model.buffers())}
    return sum(each.numel() * each.element_size() for each in tensors.values())


def planned(case):
    """The row of one case."""
    config = configured(case)
    stages = config.parallel_config.pipeline_parallel_size
    place(config, 0)
    model = build(config)
    weights = weight_bytes(model)
    with set_current_vllm_config(config):
        ranks = [Rank(config)]
    ranks += [of_stage(case, stage) for stage in range(1, stages)]
    layouts = [[each.name for each in get_supported_kv_cache_layouts(ranks[0].backends)]]
    specs = [rank.specs for rank in ranks for _ in range(case["tp"])]
    every = [spec for rank in ranks for spec in rank.specs.values()]
    with set_current_vllm_config(config):
        layout = resolve_kv_cache_layout(config, layouts * len(specs), every)
    row = {**described(config), "weight_bytes_rank0": weights, "kv_cache_layout": layout.name}
    row["attention_backends"] = [each.get_name() for each in ranks[0].backends]
    row["kv_layers"] = sum(len(rank.specs) for rank in ranks)
    row["kv_shared_layers"] = sum(rank.shared for rank in ranks)
    row["layer_specs"] = gathered(spec for rank in ranks for spec in rank.specs.values())
    return {**row, **asked(config, specs, case)}


def of_stage(case, stage):
    """The first rank of a later stage, by a configuration of its own: layers sign themselves into it."""
    config = configured(case)
    place(config, stage)
    build(config)
    with set_current_vllm_config(config):
        return Rank(config)


def described(config):
    cache, model, scheduler = config.cache_config, config.model_config, config.scheduler_config
    return {
        "architecture": model.architecture,
        "dtype": named(model.dtype),
        "quantization": model.quantization,
        "hf_max_model_len": model.max_model_len,
        "cache_dtype": cache.cache_dtype,
        "block_size": cache.block_size,
        "mamba_block_size": cache.mamba_block_size,
        "mamba_page_size_padded": cache.mamba_page_size_padded,
        "mamba_cache_mode": cache.mamba_cache_mode,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "enable_prefix_caching": cache.enable_prefix_caching,
    }


def asked(config, specs, case):
    """Groups, and for each amount of memory and each length the pool or the refusal."""
    longest = config.model_config.max_model_len
    lengths = [longest] if "max_model_len" in case["extra_args"] else sorted({min(n, longest) for n in case["lengths"]})
    groups, results = None, []
    for available_bytes in case["available_bytes"]:
        for length in lengths:
            configs, result = pool(config, specs, available_bytes, length)
            groups = groups or (configs and grouped(configs[0]))
            results.append({"available_bytes_per_gpu": available_bytes, "max_model_len": length, **result})
    return {"groups": groups, "results": results}


def pool(config, specs, available_bytes, length):
    config = copy.copy(config)
    config.model_config.max_model_len = config.model_config.original_max_model_len = length
    try:
        with set_current_vllm_config(config):
            configs = kv_cache_utils.get_kv_cache_configs(
                config, [dict(each) for each in specs], [available_bytes] * len(specs)
            )
            scheduled = kv_cache_utils.generate_scheduler_kv_cache_config(configs)
            tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(config, scheduled)
            bytes_per_block = max(
                kv_cache_utils._pool_bytes_per_block(config, each.kv_cache_groups) for each in configs
            )
    except ValueError as error:
        return None, {"refused": True, "error": str(error).split(" See https")[0]}
    per_group = [
        -(-group.kv_cache_spec.max_memory_usage_bytes(config) // group.kv_cache_spec.page_size_bytes)
        for group in scheduled.kv_cache_groups
    ]
    return configs, {
        "num_blocks": scheduled.num_blocks,
        "kv_cache_size_tokens": tokens,
        "max_concurrency": round(concurrency, DIGITS),
        "bytes_per_block": bytes_per_block,
        "blocks_per_max_len_request": sum(per_group),
        "blocks_per_request_by_group": per_group,
    }


def grouped(config):
    groups = []
    for group in config.kv_cache_groups:
        spec, layers = group.kv_cache_spec, len(group.layer_names)
        if isinstance(spec, UniformTypeKVCacheSpecs):
            size = {"block_size": spec.block_size, "page_size_bytes": spec.page_size_bytes}
            groups.append({"layers": layers, "uniform_type": gathered(spec.kv_cache_specs.values()), **size})
        else:
            groups.append({"layers": layers, **one(spec)})
    return groups


def gathered(specs):
    """Equal ones once, with their number."""
    counts = {}
    for spec in specs:
        written = json.dumps(one(spec), sort_keys=True)
        counts[written] = counts.get(written, 0) + 1
    return [{**json.loads(written), "layers": count} for written, count in counts.items()]


SPEC_FIELDS = (
    "num_kv_heads", "head_size", "head_size_v", "sliding_window", "attention_chunk_size", "page_size_padded",
    "cache_dtype_str", "alignment", "compress_ratio", "mamba_type", "mamba_cache_mode", "num_speculative_blocks",
    "kv_quant_mode",
)  # fmt: skip


def one(spec):
    found = {"type": type(spec).__name__, "block_size": spec.block_size, "page_size_bytes": spec.page_size_bytes}
    for name in SPEC_FIELDS:
        value = getattr(spec, name, None)
        if value is not None:
            found[name] = value if isinstance(value, int | str | float) else str(value)
    if hasattr(spec, "dtype"):
        found["dtype"] = named(spec.dtype)
    if hasattr(spec, "shapes"):
        found["shapes"] = [list(shape) for shape in spec.shapes]
        found["dtypes"] = [named(dtype) for dtype in spec.dtypes]
    return found


def named(dtype):
    return str(dtype).removeprefix("torch.")


def in_child(case):
    before = set(sys.modules)
    try:
        row = planned(case)
    except BaseException as error:
        said = " ".join(str(error).split())
        row = {"rejected": f"{type(error).__name__}: {said}", "results": []}
    return {"row": row, "imported": sorted(set(sys.modules) - before)}


def run(case):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(CASE_SECONDS)
        os.dup2(2, 1)
        with os.fdopen(write, "wb") as answer:
            answer.write(json.dumps(in_child(case), default=str).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        found = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not found:
        return {"rejected": f"the planner's process ended with {status}", "results": []}
    outcome = json.loads(found)
    for module in outcome["imported"]:
        with contextlib.suppress(Exception):  # made at run time, or a GPU machine's: no file to import
            importlib.import_module(module)
    return outcome["row"]


if __name__ == "__main__":
    pretended_gpu.complete()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line))) + "\n")
        sys.stdout.flush()
