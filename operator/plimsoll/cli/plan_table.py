"""A plan as people read it at a terminal."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Console

GIB: Final = 2**30


def print_plans(results: Iterable[Mapping[str, Any]]) -> None:
    """Print every result, one block each."""
    console = Console(highlight=False, soft_wrap=True)
    for result in results:
        console.print()
        _print_plan(console, result) if result["feasible"] else _print_refusal(console, result)


def _print_plan(console: Console, result: Mapping[str, Any]) -> None:
    choice, kv, available = result["choice"], result["kv"], result["availableKVBytes"]
    console.print(f"{result['service']}: feasible", style="bold")
    gpus = choice["replicas"] * choice["gpusPerReplica"]
    console.print(
        f"  {choice['replicas']} x {choice['gpusPerReplica']} {choice['gpu']} ({gpus} GPUs), "
        f"tensor parallel {choice['tensorParallel']}, vLLM {choice['engineVersion']}"
    )
    console.print(f"  vllm serve {result['model']} {' '.join(choice['args'])}")
    _print_memory(console, result["memory"], available)
    console.print(
        f"  one engine: {kv['numBlocks']:,} blocks of {kv['blockSize']} tokens, {kv['bytesPerBlock']:,} bytes each: "
        f"{kv['tokens']:,} tokens, {kv['maxConcurrency']:.2f} requests of the full context at once"
    )
    if kv.get("blocksPerRequestAtLoad"):
        blocks, concurrency = kv["blocksPerRequestAtLoad"], kv["concurrencyAtLoad"]
        console.print(f"  at the typical load: {blocks} blocks a request, {concurrency:.1f} requests at once")
    _print_rejected(console, result["rejected"])
    for assumption in result["assumptions"]:
        console.print(f"  assumed: {assumption}")


def _print_memory(console: Console, items: Iterable[Mapping[str, Any]], available: Mapping[str, float]) -> None:
    console.print("  one GPU of the fullest:")
    for item in items:
        console.print(f"  {item['bytes'] / GIB:8.2f} GiB  {item['item']:18} {item['basis']:8} {item['from']}")
    low, mid, high = (available[k] / GIB for k in ("low", "mid", "high"))
    console.print(
        f"  {mid:8.2f} GiB  {'left for KV cache':18} {low:.2f} to {high:.2f}; start and context hold at the low end"
    )


def _print_refusal(console: Console, result: Mapping[str, Any]) -> None:
    console.print(f"{result['service']}: not feasible ({result['reason']})", style="bold")
    console.print(f"  {result['message']}")
    _print_rejected(console, result["rejected"])
    for near in result["nearest"]:
        console.print(f"  would fit: {near['change']} ({near['message']})")


def _print_rejected(console: Console, rejected: Iterable[Mapping[str, Any]]) -> None:
    for candidate in rejected:
        console.print(f"  not {candidate['choice']}: {candidate['reason']}: {candidate['message']}")
