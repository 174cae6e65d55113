"""Flags of ``vllm serve`` in each recorded release, as the engines' own parsers hold them (``engine_flags.json``).

Between two recorded releases a flag may have come or gone at any point: it counts as known when either of them knows
it, and as unknown only when neither does.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Final

from plimsoll.facts.engines import EngineVersion

# What replaced a removed flag; names as the release that has the successor spells them.
_SUCCESSORS: Final[Mapping[str, str]] = {
    "calculate_kv_scales": "nothing: scales come from the checkpoint",
    "cuda_graph_sizes": "--cudagraph-capture-sizes",
    "disable_async_output_proc": "nothing: it went with the V0 engine",
    "disable_frontend_multiprocessing": "nothing",
    "disable_log_requests": "--no-enable-log-requests",
    "disable_mm_preprocessor_cache": "--mm-processor-cache-gb 0",
    "enable_bf16x3_router_gemm": "nothing",
    "enable_lora_bias": "nothing: adapters' biases are not applied",
    "enable_multimodal_encoder_data_parallel": "--mm-encoder-tp-mode data",
    "eplb_log_balancedness": "--eplb-config",
    "eplb_step_interval": "--eplb-config",
    "eplb_window_size": "--eplb-config",
    "guided_decoding_backend": "--structured-outputs-config",
    "guided_decoding_disable_additional_properties": "--structured-outputs-config",
    "guided_decoding_disable_any_whitespace": "--structured-outputs-config",
    "guided_decoding_disable_fallback": "--structured-outputs-config",
    "logits_processor_pattern": "nothing",
    "lora_extra_vocab_size": "nothing: adapters bring no tokens of their own",
    "max_long_partial_prefills": "nothing",
    "max_num_partial_prefills": "nothing",
    "max_seq_len_to_capture": "--max-cudagraph-capture-size",
    "num_lookahead_slots": "nothing: --speculative-config decides",
    "num_redundant_experts": "--eplb-config",
    "override_attention_dtype": "--attention-config",
    "override_pooler_config": "--pooler-config",
    "preemption_mode": "nothing: preempted requests are recomputed",
    "rope_scaling": "--hf-overrides",
    "rope_theta": "--hf-overrides",
    "scheduler_delay_factor": "nothing: it went with the V0 engine",
    "swap_space": "nothing: preempted requests are recomputed",
    "task": "--runner and --convert",
}


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of the parser. ``seen`` are positions in ``releases()``; ``choices`` start at a position each.

    ``spelt``: positions of the names that not every release with the flag has.
    """

    dest: str
    names: tuple[str, ...]
    switch: bool
    type: str | None
    seen: tuple[int, ...]
    choices: tuple[tuple[int, tuple[str, ...]], ...]
    spelt: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)

    @property
    def spelling(self) -> str:
        """The name a command line uses."""
        return self.names[0]

    def known_to(self, version: EngineVersion) -> bool:
        """Whether the release knows it, or may (see the module)."""
        return any(position in self.seen for position in _around(version))

    def seen_as(self, name: str) -> tuple[int, ...]:
        """Releases that take it by this name, in any spelling of it."""
        return next((seen for spelling, seen in self.spelt.items() if _fold(spelling) == _fold(name)), self.seen)

    def choices_of(self, version: EngineVersion) -> tuple[str, ...]:
        """Values a recorded release allows, those of any release for one in between; empty when anything is."""
        found = [self._choices_at(position) for position in _around(version)]
        if not all(found):
            return ()
        ever = found if len(found) == 1 else [values for _, values in self.choices]
        return tuple(dict.fromkeys(value for values in ever for value in values))

    def _choices_at(self, position: int) -> tuple[str, ...]:
        return next((values for start, values in reversed(self.choices) if start <= position), ())


def find(name: str) -> Flag | None:
    """The flag of a name in any spelling: ``max_num_seqs``, ``--max-num-seqs``, ``-tp``."""
    return _by_name().get(_fold(name))


@cache
def spellings() -> tuple[str, ...]:
    """Every name of every recorded release, with underscores and without the dashes before it."""
    return tuple(_by_name())


def removed(flag: Flag) -> bool:
    """Whether the newest recorded release no longer has it."""
    return len(releases()) - 1 not in flag.seen


def last_seen(flag: Flag) -> str:
    """The last recorded release that has it."""
    return releases()[flag.seen[-1]]


def successor(dest: str) -> str | None:
    """What replaced a removed flag."""
    return _SUCCESSORS.get(dest)


def surely_knows(name: str, version: EngineVersion) -> bool:
    """Whether the release has the flag without a doubt: it was recorded with it, or both its neighbours were."""
    flag = find(name)
    return flag is not None and all(position in flag.seen_as(name) for position in _around(version))


def flag_problem(name: str, version: EngineVersion) -> str | None:
    """Why the release would not take the flag, with the nearest one or what replaced it; None when it would."""
    flag = find(name)
    if flag is None:
        close = difflib.get_close_matches(_fold(name), _names_of(version), n=1, cutoff=0.6)
        hint = f"; did you mean {close[0]}?" if close else ""
        return f"{name}: vLLM {version} has no such flag{hint}"
    seen = flag.seen_as(name)
    if any(position in seen for position in _around(version)):
        return None
    first, last = releases()[seen[0]], releases()[seen[-1]]
    instead = f"; instead: {flag.spelling}" if flag.known_to(version) else _instead(flag)
    spelling = next((each for each in flag.names if _fold(each) == _fold(name)), flag.spelling)
    if EngineVersion.parse(first) > version:
        instead = instead if flag.known_to(version) else ""
        return f"{name}: vLLM {version} does not have {spelling} yet; first seen in {first}{instead}"
    return f"{name}: vLLM {version} does not have {spelling} any more; last seen in {last}{instead}"


def _instead(flag: Flag) -> str:
    successor = _SUCCESSORS.get(flag.dest)
    return f"; instead: {successor}" if successor else ""


@cache
def releases() -> tuple[str, ...]:
    """Releases whose parser was recorded, oldest first."""
    return tuple(_table()["releases"])


@cache
def _around(version: EngineVersion) -> tuple[int, ...]:
    """Positions of the recorded release itself, else of its neighbours."""
    recorded = [EngineVersion.parse(name) for name in releases()]
    if version in recorded:
        return (recorded.index(version),)
    before = sum(other < version for other in recorded)
    return tuple(position for position in (before - 1, before) if 0 <= position < len(recorded))


@cache
def _names_of(version: EngineVersion) -> tuple[str, ...]:
    return tuple(_fold(flag.spelling) for flag in _by_name().values() if flag.known_to(version))


def _fold(name: str) -> str:
    return name if name.startswith("-") and not name.startswith("--") else name.lstrip("-").replace("-", "_")


@cache
def _by_name() -> Mapping[str, Flag]:
    found: dict[str, Flag] = {}
    for row in _table()["flags"]:
        flag = Flag(
            dest=row["dest"],
            names=tuple(row["names"]),
            switch=row["switch"],
            type=row["type"],
            seen=tuple(row["seen"]),
            choices=tuple((start, tuple(map(str, values))) for start, values in row["choices"]),
            spelt={name: tuple(seen) for name, seen in row.get("spelt", {}).items()},
        )
        for name in (flag.dest, *flag.names):
            found.setdefault(_fold(name), flag)
    return found


@cache
def _table() -> dict[str, list]:  # type: ignore[type-arg] # rows of our own file
    text = resources.files(__package__).joinpath("engine_flags.json").read_text(encoding="utf-8")
    loaded: dict[str, list] = json.loads(text)  # type: ignore[type-arg]
    return loaded
