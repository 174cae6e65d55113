"""A plan in words and figures, for people: the same sections at a terminal, in a report and for a live service.

The input is the contract's JSON of a plan (`plimsoll plan -o json`, ``status.plan``), so that what was planned here
and what a cluster reports read alike. What is absent is left out or called unknown, never shown as 0.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.core.quantity import gib

SURENESS: Final[Mapping[str, str]] = {
    "exact": "arithmetic",
    "fitted": "from measurements",
    "assumed": "a cautious guess",
}
LATENCIES: Final = (("ttftMs", "time to first token"), ("itlMs", "between two tokens"))
_PARALLELISM: Final = (
    ("tensorParallel", "tensor"),
    ("pipelineParallel", "pipeline"),
    ("dataParallel", "data"),
    ("decodeContextParallel", "decode context"),
)
_STARTUP_PARTS: Final = (
    ("fetch", "fetch"), ("read", "read"), ("process", "processes"), ("compile", "compile"), ("capture", "graphs")
)  # fmt: skip
_LIMITS: Final[Mapping[str, str]] = {
    "yes": "met, at the cautious end of the range",
    "no": "not met on any candidate; this is the best effort",
    "unknown": "unknown: it cannot be told for this load, model or GPU",
}

_MORE_THAN_ALONE: Final = 1.01
_LONGEST_SUBJECT: Final = 2
_WHOLE: Final = 100

PlanJSON = Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A title and rows of cells; the cells of one section stand below each other."""

    title: str
    rows: tuple[tuple[str, ...], ...]


def headline(plan: PlanJSON) -> str:
    """The choice in one sentence."""
    choice = plan["choice"]
    each, replicas = choice["gpusPerReplica"], choice["replicas"]
    return f"{replicas} x {each} {choice['gpu']} ({_count(replicas * each, 'GPU')}), {parallelism(choice)}"


def parallelism(choice: Mapping[str, Any]) -> str:
    """How one replica is split, without what is 1."""
    parts = [f"{word} parallel {choice[key]}" for key, word in _PARALLELISM if choice.get(key, 1) > 1]
    parts += ["expert parallel"] if choice.get("expertParallel") else []
    nodes = choice.get("nodesPerReplica", 1)
    spread = f" over {nodes} nodes" if nodes > 1 else ""
    return (", ".join(parts) or "no parallelism") + spread


def sections(plan: PlanJSON, model: str = "MODEL") -> tuple[Section, ...]:
    """Everything a plan says, in the order in which people ask; empty sections are left out."""
    found = (
        Section("What runs", tuple(_what(plan, model))),
        Section("Memory of the fullest GPU", tuple(_memory(plan))),
        Section("Capacity of one engine", tuple(_capacity(plan))),
        Section("Latency", tuple(_latency(plan))),
        Section("A pod's start and end", tuple(_pods(plan))),
        Section("Would fit (each was planned)", _pairs(plan, "nearest", ("change", "message"))),
        Section("Tried and not chosen", _pairs(plan, "rejected", ("choice", "reason", "message"))),
        Section("Why, and what is taken for granted", tuple(map(_about, plan.get("assumptions") or ()))),
    )
    return tuple(section for section in found if section.rows)


def _what(plan: PlanJSON, model: str) -> Iterator[tuple[str, ...]]:
    choice = plan.get("choice")
    if not choice:
        return
    yield "hardware", headline(plan)
    yield "engine", f"vLLM {choice['engineVersion']}"
    engines = choice.get("enginesPerReplica", 1)
    if engines > 1:
        yield "engines", f"{engines} in a replica (data-parallel ranks), each with a KV cache of its own"
    yield "command", shlex.join(["vllm", "serve", model, *(choice.get("args") or ())])


def _memory(plan: PlanJSON) -> Iterator[tuple[str, ...]]:
    for item in plan.get("memory") or ():
        yield gib(item["bytes"]), item["item"], item["basis"], item.get("from", "")
    left = plan.get("availableKVBytes")
    if left:
        span = f"{gib(left['low'])} to {gib(left['high'])}; start and context hold at the low end"
        yield gib(left["mid"]), "left for KV cache", "", span


def _capacity(plan: PlanJSON) -> Iterator[tuple[str, ...]]:
    kv = plan.get("kv")
    if not kv:
        return
    yield "pool", f"{kv['numBlocks']:,} blocks of {kv['blockSize']:,} tokens, {kv['bytesPerBlock']:,} bytes each"
    yield "tokens", f"{kv['tokens']:,}"
    yield "full context", f"{kv['maxConcurrency']:.2f} requests at once"
    if kv.get("blocksPerRequestAtLoad"):
        blocks, requests = kv["blocksPerRequestAtLoad"], kv["concurrencyAtLoad"]
        shared = ", what they share counted once" if requests * blocks > kv["numBlocks"] * _MORE_THAN_ALONE else ""
        yield "typical load", f"{requests:,.1f} requests at once, {_count(blocks, 'block')} each{shared}"


def _latency(plan: PlanJSON) -> Iterator[tuple[str, ...]]:
    if not plan.get("choice"):
        return
    known = plan.get("latency") or {}
    for key, words in LATENCIES:
        if known.get(key):
            yield words, milliseconds(known[key])
    met = plan.get("sloMet")
    if met:
        yield "SLO", _LIMITS.get(met, met)


def _pods(plan: PlanJSON) -> Iterator[tuple[str, ...]]:
    start, end, host = (plan.get(key) or {} for key in ("startup", "drain", "host"))
    if start:
        parts = ", ".join(
            f"{word} {start[f'{key}Seconds']} s" for key, word in _STARTUP_PARTS if start[f"{key}Seconds"]
        )
        yield "starts in", f"about {start['seconds']} s: {parts}; {start['basis']}"
        yield "may take", f"{start['probeSeconds']} s, then it is restarted; a roll-out {start['deadlineSeconds']} s"
    if end:
        times = f"{end['preStopSeconds']} s until routers forget it, {end['timeoutSeconds']} s for requests in flight"
        yield "ends in", f"{times}; killed after {end['graceSeconds']} s ({end['basis']})"
    if host:
        memory, shared = gib(host["memoryBytes"]), gib(host["sharedMemoryBytes"])
        yield "host", f"{memory} of memory, {shared} of it shared; {_count(host['cpuCores'], 'core')}"


def _pairs(plan: PlanJSON, key: str, columns: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(str(entry.get(column, "")) for column in columns) for entry in plan.get(key) or ())


def _about(text: str) -> tuple[str, ...]:
    """``subject: what about it`` in two cells."""
    subject, colon, rest = text.partition(": ")
    return (subject, rest) if colon and len(subject.split()) <= _LONGEST_SUBJECT else ("", text)


def milliseconds(span: Mapping[str, float]) -> str:
    """A range of milliseconds: ``likely 21.4 ms (18 to 30)``, whole from 100 on."""
    low, mid, high = (
        f"{span[end]:,.0f}" if span[end] >= _WHOLE else f"{span[end]:.3g}" for end in ("low", "mid", "high")
    )
    return f"likely {mid} ms ({low} to {high})"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
