"""``audit --prometheus``: peaks of every workload over a period, asked of Prometheus."""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import typer

from plimsoll.adapters.prometheus import PrometheusSource
from plimsoll.cli.audit_result import Audited, Judged
from plimsoll.cli.output import BAD_INPUT, complain
from plimsoll.core.audit.usage import Usage, freed, said
from plimsoll.core.sampling import Answer, Fault
from plimsoll.core.workloads.server import Server
from plimsoll.facts import engine_metrics as names
from plimsoll.facts.engine_metrics import EngineMetric
from plimsoll.settings import PrometheusSettings

TIMEOUT_SECONDS: Final = 30.0
_HOUR: Final = 3600.0
_STEPS: Final = 40_000
_LEAST_STEP_SECONDS: Final = 5
"""Not coarser than scrapes are, so that no peak falls between two steps."""
_CONFIG: Final = "config"
_LABELS: Final = ("num_gpu_blocks", "block_size", "kv_cache_size_tokens")
_PERIOD: Final = re.compile(r"(\d{1,4})(m|h|d|w)")
_UNITS: Final[Mapping[str, float]] = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def period_seconds(written: str) -> float:
    """``7d`` → seconds; ends the command with exit code 2 for anything else."""
    match = _PERIOD.fullmatch(written.strip())
    if match is None or int(match[1]) == 0:
        complain(f"--period: {written!r} is not a number and a unit: m, h, d or w")
        raise typer.Exit(BAD_INPUT)
    return int(match[1]) * _UNITS[match[2]]


def add_usage(audited: Audited, url: str, seconds: float) -> None:
    """Ask about every server that stands for a workload, and write down what is known."""
    servers = [each for each in audited.judged if each.server.candidate.labels]
    answers, fault = asyncio.run(_asked(url, [each.server for each in servers], seconds))
    if fault is not None:
        audited.notes.append(f"--prometheus: {fault.message}")
        audited.unreachable = True
        return
    audited.usage = [_row(judged, answer, seconds) for judged, answer in zip(servers, answers, strict=True)]


def _row(judged: Judged, answer: Mapping[str, float], seconds: float) -> dict[str, Any]:
    server, evidence = judged.server, judged.judgement.evidence
    usage = _usage(answer, seconds)
    verdict = freed(server, evidence, usage)
    return {
        "object": judged.object_name,
        "hours": round(usage.hours, 3),
        "peakKvPools": usage.peak_pools,
        "peakKvBlocks": _product(usage.peak_pools, usage.pool_blocks),
        "poolTokens": usage.pool_tokens,
        "preemptions": usage.preemptions,
        "peakRunning": usage.peak_running,
        "peakWaiting": usage.peak_waiting,
        "promptTokensP99": usage.prompt_tokens_p99,
        "outputTokensP99": usage.output_tokens_p99,
        "gpusFreed": verdict.gpus if verdict else None,
        "replicasNeeded": verdict.replicas_needed if verdict else None,
        "tensorParallel": verdict.tensor_parallel if verdict else None,
        "confidence": verdict.confidence if verdict else None,
        "doubts": list(verdict.why) if verdict else [],
        "said": said(server, usage, verdict),
    }


def _product(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else round(one * other, 1)


def _usage(answer: Mapping[str, float], seconds: float) -> Usage:
    blocks, block_tokens = answer.get("num_gpu_blocks"), answer.get("block_size")
    tokens = answer.get("kv_cache_size_tokens") or (blocks * block_tokens if blocks and block_tokens else None)
    replicas = answer.get("replicas")
    return Usage(
        hours=seconds / _HOUR,
        replicas=None if replicas is None else round(replicas),
        peak_pools=answer.get("pools"),
        peak_running=answer.get("running"),
        peak_waiting=answer.get("waiting"),
        preemptions=answer.get("preemptions"),
        pool_blocks=blocks,
        pool_tokens=tokens,
        prompt_tokens_p99=answer.get("prompt"),
        output_tokens_p99=answer.get("output"),
        covered=answer.get("covered"),
    )


async def _asked(url: str, servers: Sequence[Server], seconds: float) -> tuple[list[dict[str, float]], Fault | None]:
    source = PrometheusSource(PrometheusSettings(url=url, timeout_seconds=TIMEOUT_SECONDS))
    try:
        found = []
        for server in servers:
            answer = await _one(source, queries(server, seconds))
            if isinstance(answer, Fault):
                return [], answer
            found.append(answer)
        return found, None
    finally:
        source.close()


async def _one(source: PrometheusSource, asked: Mapping[str, str]) -> dict[str, float] | Fault:
    found: dict[str, float] = {}
    for name, promql in asked.items():
        answer = await source.query(promql)
        if isinstance(answer, Fault):
            if answer.kind in {"unreachable", "auth"}:
                return answer
            continue
        if name == _CONFIG:
            found |= _of_labels(answer)
        elif values := [series.value for series in answer.series if math.isfinite(series.value)]:
            found[name] = max(values)
    return found


def _of_labels(answer: Answer) -> dict[str, float]:
    """Figures that stand in labels; of several pools the smallest."""
    found: dict[str, float] = {}
    for label in _LABELS:
        written = [series.labels.get(label, "") for series in answer.series]
        known = [float(each) for each in written if each.isdecimal()]
        if known:
            found[label] = min(known)
    return found


def queries(server: Server, seconds: float) -> dict[str, str]:
    """What is asked about one workload: its pods by their name, over all spellings of a metric."""
    step = max(_LEAST_STEP_SECONDS, round(seconds / _STEPS))
    span, over = f"[{seconds:.0f}s]", f"[{seconds:.0f}s:{step}s]"
    chosen = f'{{namespace="{server.namespace}",pod=~"{_pods(server)}"}}'
    use = _any(names.KV_USE, chosen)
    return {
        "pools": f"max_over_time(sum({use}){over})",
        "running": f"max_over_time(sum({_any(names.RUNNING, chosen)}){over})",
        "waiting": f"max_over_time(sum({_any(names.WAITING, chosen)}){over})",
        "preemptions": f"sum({_each(names.PREEMPTIONS, chosen, 'increase', span)})",
        "replicas": f"count(count by (pod) ({use}))",
        "covered": f"count_over_time(sum({use}){over}) / {seconds / step:.0f}",
        _CONFIG: f"max by ({', '.join(_LABELS)}) ({_any(names.CACHE_CONFIG, chosen)})",
        "prompt": _quantile("vllm:request_prompt_tokens_bucket", chosen, span),
        "output": _quantile("vllm:request_generation_tokens_bucket", chosen, span),
    }


def _pods(server: Server) -> str:
    return f"{re.escape(server.name)}-.+".replace("\\", "\\\\")


def _any(metric: EngineMetric, chosen: str) -> str:
    return " or ".join(f"{name}{chosen}" for name in metric.names)


def _each(metric: EngineMetric, chosen: str, function: str, span: str) -> str:
    return " or ".join(f"{function}({name}{chosen}{span})" for name in metric.names)


def _quantile(bucket: str, chosen: str, span: str) -> str:
    return f"histogram_quantile(0.99, sum by (le) (increase({bucket}{chosen}{span})))"
