"""What would run for a planned service: its pods, by the operator's own rules, and what is worth comparing of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.cli.inventory import Prices
from plimsoll.cli.planning import Planned
from plimsoll.core.plan.extra_args import BadFlagError, argv_flags
from plimsoll.core.plan.result import Plan
from plimsoll.core.plan.words import LATENCIES, milliseconds
from plimsoll.core.request import read_request
from plimsoll.core.rollout import render
from plimsoll.facts import gpus
from plimsoll.facts.engines import EngineVersion

GIB: Final = 1 << 30


@dataclass(frozen=True)
class Fleet:
    """The pods of a feasible service: how many replicas start, and the template of each."""

    plan: Plan
    replicas: int
    template: Mapping[str, Any]

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.plan.choice.gpus_per_replica

    @property
    def pods(self) -> int:
        """Pods of all replicas."""
        return self.replicas * self.plan.choice.nodes_per_replica

    def cost(self, prices: Prices) -> float:
        """GPUs × price; the product must have one."""
        return self.gpus * prices[self.plan.choice.gpu]

    @property
    def memory_gib(self) -> float:
        """GPU memory held, in GiB as the driver reports it."""
        gpu = gpus.find(self.plan.choice.gpu)
        return self.gpus * gpu.memory_driver_bytes / GIB if gpu else 0.0

    def facts(self) -> dict[str, str]:
        """Everything worth comparing, as text by what it is about."""
        plan, replicas = self.plan, self.replicas
        return {**_hardware(plan, replicas), **_memory(plan), **_capacity(plan, replicas), **_flags(plan)}


def fleet_of(planned: Planned | None) -> Fleet | None:
    """None when there is no service, or no plan for it."""
    if planned is None or not isinstance(planned.outcome, Plan):
        return None
    identity = {"name": planned.name, "namespace": planned.namespace, "uid": ""}
    meta = {**(planned.manifest.get("metadata") or {}), **identity}
    request, plan = read_request({**planned.manifest, "metadata": meta}), planned.outcome
    replicas = request.wanted_replicas(plan.choice.gpus_per_replica, plan.choice.replicas)
    return Fleet(plan, replicas, render(request, plan, 1).template)


def _hardware(plan: Plan, replicas: int) -> dict[str, str]:
    choice = plan.choice
    sizes = {
        "tensor parallel": choice.tensor_parallel,
        "pipeline parallel": choice.pipeline_parallel,
        "data parallel": choice.data_parallel,
        "decode context parallel": choice.decode_context_parallel,
        "nodes a replica": choice.nodes_per_replica,
    }
    return {
        "GPU": choice.gpu,
        "replicas": str(replicas),
        "GPUs a replica": str(choice.gpus_per_replica),
        **{name: str(size) for name, size in sizes.items()},
        "expert parallel": "yes" if choice.expert_parallel else "no",
        "vLLM": choice.engine_version,
    }


def _memory(plan: Plan) -> dict[str, str]:
    """What an upgrade moves without a word: releases count CUDA graphs inside the share of memory, or beside it."""
    gpu = gpus.find(plan.choice.gpu)
    graphs = sum(item.bytes for item in plan.memory if item.item == "cuda_graphs")
    share = _by_name(plan).get("--gpu-memory-utilization")
    found = {"left for KV cache, fullest GPU": f"{plan.available_kv_bytes.mid / GIB:.2f} GiB"}
    if gpu is not None and isinstance(share, str):
        found["share of memory without CUDA graphs"] = f"{float(share) - graphs / gpu.torch_total_bytes:.4f}"
    return found


def _capacity(plan: Plan, replicas: int) -> dict[str, str]:
    kv = plan.kv
    found = {
        "KV tokens an engine": f"{kv.tokens:,}",
        "KV tokens in all": f"{kv.tokens * replicas * plan.choice.engines_per_replica:,}",
        "requests of the full context at once, an engine": f"{kv.max_concurrency:.2f}",
    }
    if kv.concurrency_at_load is not None:
        found["requests of the typical load at once, an engine"] = f"{kv.concurrency_at_load:.1f}"
    for key, words in LATENCIES:
        if key in plan.latency:
            span = plan.latency[key]
            found[words] = milliseconds({"low": span.low, "mid": span.mid, "high": span.high})
    return found | {"SLO met": plan.slo_met}


def _flags(plan: Plan) -> dict[str, str]:
    flags = _by_name(plan)
    return {name: _value(value) for name, value in flags.items()} or {"arguments": " ".join(plan.choice.args)}


def _by_name(plan: Plan) -> Mapping[str, Any]:
    """The arguments by flag; none where the version is not one whose parser is known."""
    try:
        return argv_flags(plan.choice.args, EngineVersion.parse(plan.choice.engine_version))
    except (BadFlagError, ValueError):
        return {}


def _value(value: Any) -> str:  # noqa: ANN401 - JSON
    if value is True:
        return "set"
    return value if isinstance(value, str) else json.dumps(value)
