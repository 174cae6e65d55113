"""The running argv as ``spec.engine.extraArgs``: each flag that no field of the spec stands for."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.plan.extra_args import OURS_ALONE
from plimsoll.core.workloads.arguments import SECRET_FLAGS, Use, read_number
from plimsoll.core.workloads.launch import is_unresolved
from plimsoll.facts import engine_flags, past_flags
from plimsoll.facts.engine_flags import Flag
from plimsoll.facts.engines import EngineVersion, batch_defaults, default_utilisation

# What a field of the spec, or the operator itself, stands for.
_ELSEWHERE: Final = frozenset({"model", "model_tag", "max_model_len", "host", "revision", "download_dir", "config"})
_REFUSED: Final[Mapping[str, str]] = {
    **OURS_ALONE,
    "port": "Plimsoll serves on 8000; clients reach the Service, not the container",
    "api_key": "set VLLM_API_KEY in spec.podTemplate from a Secret that the operator's owner lists",
    "distributed_executor_backend": "Plimsoll sets it",
    "data_parallel_address": "the roll-out numbers the engines",
    "data_parallel_rpc_port": "the roll-out numbers the engines",
    "disable_log_requests": "requests are not logged unless asked for",
}
_DEFAULT_PORT: Final = "8000"


@dataclass(frozen=True)
class Left:
    """Something of the running server that the service does not say, and why."""

    what: str
    why: str


def extra_arguments(evidence: Evidence, version: EngineVersion) -> tuple[list[str], list[Left]]:
    """(arguments, what was left out) for a release; sizes that the engine would take by itself are written out."""
    words: list[str] = []
    left: list[Left] = []
    for use in evidence.server.arguments.by_dest.values():
        if use.dest in _ELSEWHERE:
            continue
        problem = _problem(use, version)
        if problem is None:
            words += _spelled(use)
        elif problem:
            left.append(Left(_shown(use), problem))
    return [*words, *_sizes(evidence, version)], left


def _problem(use: Use, version: EngineVersion) -> str | None:
    """Why a flag is left out; an empty text where nobody needs to hear of it; None when it is kept."""
    if use.dest in _REFUSED:
        harmless = use.dest == "disable_log_requests" or (use.dest == "port" and use.text == _DEFAULT_PORT)
        return "" if harmless else _REFUSED[use.dest]
    if is_unresolved(use.text) or is_unresolved(use.written):
        return "its value is not in the files"
    if use.flag is None:
        successor = past_flags.find(use.dest)
        return f"no release since 0.10 has it; instead: {successor}" if successor else "no release has such a flag"
    if use.flag.known_to(version):
        return None
    return engine_flags.flag_problem(use.flag.spelling, version)


def _spelled(use: Use) -> list[str]:
    """One flag as words: the long name, hyphens, the value in a word of its own; switches in their --no- form."""
    assert use.flag is not None  # noqa: S101 # the caller asked
    path = use.written.partition(".")[2]
    name = _long_name(use.flag) + (f".{path}" if path else "")
    if use.flag.switch:
        return [f"--no-{name[2:]}" if use.off else name]
    if isinstance(use.value, list) and use.value and not isinstance(use.value[0], dict):
        return [name, *(str(each) for each in use.value)]
    if isinstance(use.value, dict | list):
        return [name, json.dumps(use.value)]
    return [name] if use.value is True else [name, str(use.value)]


def _long_name(flag: Flag) -> str:
    """The name that says the same as the option's own; of several that every release has."""
    own = f"--{flag.dest.replace('_', '-')}"
    positive = [name for name in flag.names if name.startswith("--") and not name.startswith("--no-")]
    return own if own in positive or not positive else positive[0]


def _shown(use: Use) -> str:
    return use.written if use.dest in SECRET_FLAGS else f"{use.written} {use.text}".strip()


def _sizes(evidence: Evidence, version: EngineVersion) -> Iterator[str]:
    """What the engine took by itself and a planner might choose differently: ranks, sequences, share of memory."""
    arguments = evidence.server.arguments
    if arguments.get("tensor_parallel_size") is None:
        yield from ("--tensor-parallel-size", "1")
    running = evidence.version or version
    if arguments.get("max_num_seqs") is None and evidence.gpu is not None:
        yield from ("--max-num-seqs", str(batch_defaults(running, evidence.gpu).max_num_seqs))
    if arguments.get("gpu_memory_utilization") is None and arguments.get("kv_cache_memory_bytes") is None:
        yield from ("--gpu-memory-utilization", f"{default_utilisation(running):g}")


def context_of(evidence: Evidence, model_limit: int | None) -> tuple[int | None, str | None]:
    """(tokens, a word about where they come from where nobody wrote them)."""
    written = read_number(evidence.server.arguments.text("max_model_len"))
    if written is not None and written > 0:
        return int(written), None
    found = evidence.prediction or {}
    fits = found.get("estimated_max_model_len")
    if found.get("outcome") == "refused" and fits:
        return int(fits), "no --max-model-len: the longest that fits"
    return model_limit, "no --max-model-len: the model's own limit"
