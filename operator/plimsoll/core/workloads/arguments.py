"""An argv that others wrote, read tolerantly: what each flag is, how it was spelled, what stands alone.

``core/plan/extra_args.py`` is strict and for arguments that go to an engine of ours; here a wrong word is a finding.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from plimsoll.facts import engine_flags, past_flags
from plimsoll.facts.engine_flags import Flag

_LISTS: Final = frozenset(
    {"served_model_name", "cudagraph_capture_sizes", "kv_cache_dtype_skip_layers", "lora_modules", "api_key",
     "middleware", "compile_sizes", "cuda_graph_sizes", "allowed_origins"}
)  # fmt: skip
_FLAGS: Final = re.compile(r"(?:^|\s)--[a-zA-Z]")
_NUMBER: Final = re.compile(r"-\d+(\.\d+)?")
_TYPICAL: Final = frozenset(
    {"max_model_len", "gpu_memory_utilization", "tensor_parallel_size", "served_model_name", "max_num_seqs",
     "max_num_batched_tokens", "enable_prefix_caching", "kv_cache_dtype", "tool_call_parser", "enforce_eager",
     "pipeline_parallel_size", "reasoning_parser", "enable_chunked_prefill", "limit_mm_per_prompt", "enable_lora"}
)  # fmt: skip
SECRET_FLAGS: Final = frozenset({"api_key", "hf_token"})
"""Whose values are repeated nowhere but in the argv itself."""
ALWAYS: Final = frozenset({"model", "model_tag"})
"""Names that every release takes and that no parser's table lists."""
# Names that vLLM took for a while, or prints itself, and that are no abbreviation of anybody's.
_SAME: Final[Mapping[str, str]] = {"kv_cache_memory": "kv_cache_memory_bytes"}
_NO: Final = frozenset({"false", "0"})


@dataclass(frozen=True)
class Use:
    """One flag of an argv. ``flag`` is None for a name that no recorded release has."""

    written: str
    dest: str
    flag: Flag | None
    value: Any
    index: int
    abbreviates: str | None = None
    """The whole name where only its beginning was written."""
    negative: bool = False
    joined: bool = False
    """Whether the value stands behind ``=`` in the same word."""

    @property
    def text(self) -> str:
        """The value as one text; of a list its first entry, of a switch nothing."""
        value = self.value[0] if isinstance(self.value, list) and self.value else self.value
        return "" if value is True or value == [] else str(value)

    @property
    def off(self) -> bool:
        """Of a switch: whether it is turned off, by its ``--no-`` form or by a value behind ``=``."""
        return self.negative or (self.joined and str(self.value).lower() in _NO)

    @property
    def known(self) -> bool:
        """Whether any release has the flag, recorded or before."""
        return is_known(self.flag, self.dest)


class Arguments:
    """The flags of an argv by their ``dest``; of a repeated one the last counts."""

    def __init__(self, argv: Sequence[str], *, positional_model: bool = True) -> None:
        self.argv = tuple(argv)
        self.positional_model = positional_model

    @cached_property
    def _read(self) -> tuple[tuple[Use, ...], tuple[tuple[int, str], ...]]:
        uses: list[Use] = []
        alone: list[tuple[int, str]] = []
        for each in _parsed(self.argv):
            if isinstance(each, Use):
                uses.append(each)
            else:
                alone.append(each)
        return tuple(uses), tuple(alone)

    @property
    def uses(self) -> tuple[Use, ...]:
        """Every flag in order."""
        return self._read[0]

    @property
    def alone(self) -> tuple[tuple[int, str], ...]:
        """(index, word) of what follows no flag, the model's name left out."""
        words = self._read[1]
        return words[1:] if words and self.positional_model else words

    @cached_property
    def by_dest(self) -> Mapping[str, Use]:
        """The use that counts of each flag."""
        return {use.dest: use for use in self.uses}

    def get(self, dest: str) -> Use | None:
        """How a flag was given, or None."""
        return self.by_dest.get(dest)

    def text(self, dest: str) -> str | None:
        """A flag's value as text; None when it was not given."""
        use = self.by_dest.get(dest)
        return None if use is None else use.text

    def on(self, dest: str) -> bool:
        """Whether a switch is on."""
        use = self.by_dest.get(dest)
        return use is not None and not use.off

    def number(self, dest: str) -> float | None:
        """A flag's value as a number, with vLLM's own suffixes; None when it was not given or is none."""
        return read_number(self.text(dest))

    def count(self, dest: str, default: int = 1) -> int:
        """A flag's value as a count."""
        value = self.number(dest)
        return default if value is None else int(value)

    @cached_property
    def model(self) -> str | None:
        """The model that is named: alone at the start, or by ``--model``."""
        words = self._read[1]
        named = self.text("model")
        return named if named is not None else words[0][1] if words and self.positional_model else None


def read_number(text: str | None) -> float | None:
    """A number as vLLM's parser reads it: ``8k`` is thousands, ``8K`` of 1,024."""
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)([kKmMgGtT]?)", (text or "").strip())
    if match is None:
        return None
    units = {"": 1, "k": 1e3, "K": 1 << 10, "m": 1e6, "M": 1 << 20, "g": 1e9, "G": 1 << 30, "t": 1e12, "T": 1 << 40}
    return float(match[1]) * units[match[2]]


def looks_like_vllm(argv: Sequence[str]) -> bool:
    """Whether words can only be arguments of vLLM: at least one flag that no other server has."""
    return any(_fold(word.partition("=")[0]) in _TYPICAL for word in argv if word.startswith("--"))


def _parsed(argv: Sequence[str]) -> Iterator[Use | tuple[int, str]]:
    words = list(enumerate(argv))
    while words:
        index, word = words.pop(0)
        if not _is_flag(word):
            yield index, word
            continue
        if len(_FLAGS.findall(word)) > 1:
            # A whole command line in one element is read as it was meant.
            words = [*((index, each) for each in word.split()), *words]
            continue
        written, equals, value = _glued(word)
        dest, flag, whole = resolve(written.partition(".")[0])
        if equals:
            given: Any = value
        elif flag is not None and flag.switch:
            given = True
        else:
            given = _values(dest, words)
        if not is_known(flag, dest) and not equals and _is_word_of(given):
            # Nobody knows whether an unknown flag takes a value: what follows is taken to be it.
            given = given[0]
        negative = flag is not None and _fold(written).startswith("no_") and not flag.dest.startswith("no_")
        yield Use(written, dest, flag, _simple(given, dest), index, whole, negative, joined=equals == "=")


def _glued(word: str) -> tuple[str, str, str]:
    """(flag, sign, value) of one word; with a blank in place of the sign it is read as it was meant."""
    match = re.match(r"(--[\w-]+)[ \t]+(?=\S)", word)
    return (match[1], " ", word[match.end() :]) if match else word.partition("=")


def is_known(flag: Flag | None, dest: str) -> bool:
    """Whether any release has a flag, recorded or before."""
    return flag is not None or dest in ALWAYS or past_flags.find(dest) is not None


def _is_word_of(given: object) -> bool:
    return isinstance(given, list) and len(given) == 1


def _simple(given: Any, dest: str) -> Any:  # noqa: ANN401 - JSON
    if isinstance(given, list) and dest not in _LISTS:
        given = given[0] if given else True
    if isinstance(given, str) and given.lstrip().startswith(("{", "[")):
        try:
            return json.loads(given)
        except (ValueError, RecursionError):
            return given
    return given


def _values(dest: str, words: list[tuple[int, str]]) -> list[str]:
    found: list[str] = []
    while words and not _is_flag(words[0][1]) and (not found or dest in _LISTS):
        found.append(words.pop(0)[1])
    return found


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and _NUMBER.fullmatch(word) is None


@lru_cache(maxsize=4096)
def resolve(written: str) -> tuple[str, Flag | None, str | None]:
    """(dest, flag, whole name where it was abbreviated) of a flag as somebody wrote it."""
    name = written.strip()
    folded = _SAME.get(_fold(name), _fold(name))
    flag = engine_flags.find(folded if name.startswith("--") else name)
    if flag is not None or folded in ALWAYS:
        return (flag.dest if flag else folded), flag, None
    if past_flags.find(folded) is not None or not name.startswith("--"):
        return folded, None, None
    whole = [each for each in engine_flags.spellings() if each.startswith(folded)]
    dests = {found.dest: found for each in whole if (found := engine_flags.find(each)) is not None}
    if len(folded) > 2 and len(dests) == 1:  # noqa: PLR2004
        dest, flag = next(iter(dests.items()))
        return dest, flag, "--" + min(whole, key=len).replace("_", "-")
    past = [each for each in past_flags.names() if each.startswith(folded)] if len(folded) > 4 else []  # noqa: PLR2004
    return (past[0], None, "--" + past[0].replace("_", "-")) if len(past) == 1 else (folded, None, None)


def _fold(name: str) -> str:
    return name.lstrip("-").replace("-", "_")
