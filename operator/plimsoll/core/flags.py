"""Plan → argv of ``vllm serve``, and the other way round for the arguments a user adds.

Everything memory depends on is written out: defaults move with the GPU and the engine's version (decision 10).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from plimsoll.core.kv.options import EngineOptions
from plimsoll.facts.engines import EngineVersion, default_utilisation
from plimsoll.facts.models import ModelFacts

GDN_PREFILL_BACKEND: Final = "triton"
"""Left alone, an SM90 GPU takes FlashInfer with another block size; the layouts we verified are Triton's."""
SHUTDOWN_TIMEOUT_SECONDS: Final = 120

# First recorded release that knows the flag (facts of the engines' own parsers).
_SINCE: Final[Mapping[str, int]] = {
    "--gdn-prefill-backend": 19,
    "--language-model-only": 19,
    "--shutdown-timeout": 19,
}
_IMAGE_TAG: Final = re.compile(r":v?(\d+\.\d+(?:\.\d+)?)")


class BadFlagError(ValueError):
    """An argument that cannot be used; the message names it, its value and what is allowed."""


@dataclass(frozen=True)
class Overrides:
    """What a user's own arguments fix of the plan, by the option they set."""

    options: Mapping[str, Any] = field(default_factory=dict)
    utilisation: float | None = None

    @property
    def tensor_parallel(self) -> int | None:
        """The tensor-parallel size the user fixed, if any."""
        return self.options.get("tensor_parallel")

    def apply(self, options: EngineOptions) -> EngineOptions:
        """The options with the user's own choices in place of ours."""
        known = {k: v for k, v in self.options.items() if k in EngineOptions.__dataclass_fields__}
        return replace(options, **known) if known else options


def engine_args(facts: ModelFacts, options: EngineOptions, extra_args: Sequence[str] = ()) -> tuple[str, ...]:
    """Arguments after the model's name, in a fixed order; the user's own replace ours of the same name."""
    theirs = {name for name, _ in split_args(extra_args)}
    ours = (pair for pair in _ours(facts, options) if pair[0] not in theirs)
    return (*(part for pair in ours for part in pair if part), *extra_args)


def _ours(facts: ModelFacts, options: EngineOptions) -> Iterator[tuple[str, str]]:
    yield "--tensor-parallel-size", str(options.tensor_parallel)
    yield "--max-model-len", str(options.max_model_len)
    yield "--max-num-seqs", str(options.max_num_seqs)
    yield "--max-num-batched-tokens", str(options.max_num_batched_tokens)
    yield "--gpu-memory-utilization", f"{default_utilisation(options.version):g}"
    yield "--kv-cache-dtype", options.kv_cache_dtype
    yield "--enable-prefix-caching" if options.enable_prefix_caching else "--no-enable-prefix-caching", ""
    if _has_gated_delta_net(facts) and _knows(options.version, "--gdn-prefill-backend"):
        yield "--gdn-prefill-backend", options.gdn_prefill_backend
    if options.text_only and facts.multimodal and _knows(options.version, "--language-model-only"):
        yield "--language-model-only", ""
    if _knows(options.version, "--shutdown-timeout"):
        yield "--shutdown-timeout", str(SHUTDOWN_TIMEOUT_SECONDS)


def _has_gated_delta_net(facts: ModelFacts) -> bool:
    return any(getattr(cache, "kind", "") == "gdn" for cache in facts.caches)


def _knows(version: EngineVersion, flag: str) -> bool:
    return version.at_least(_SINCE[flag])


def version_of_image(image: str | None) -> str | None:
    """The engine version an image's tag names, or None."""
    found = _IMAGE_TAG.search(image or "")
    return found.group(1) if found else None


def split_args(args: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """(flag, value) pairs of an argv; a flag without a value has None. Underscores count as hyphens, as in vLLM."""
    waiting: str | None = None
    for arg in args:
        if arg.startswith("--"):
            if waiting is not None:
                yield waiting, None
            name, equals, value = arg.partition("=")
            name = name.replace("_", "-")
            waiting = None if equals else name
            if equals:
                yield name, value
        elif waiting is not None:
            yield waiting, arg
            waiting = None
        else:
            raise BadFlagError(f"{arg!r} stands alone: an argument starts with -- or follows one that does")
    if waiting is not None:
        yield waiting, None


def _count(flag: str, text: str | None) -> int:
    """A whole number of at least 1; vLLM also takes 4k (thousands) and 4K (of 1,024)."""
    found = re.fullmatch(r"(\d{1,12})([kKmM]?)", text or "")
    factor = {"": 1, "k": 1000, "K": 1024, "m": 1_000_000, "M": 1024**2}
    value = int(found[1]) * factor[found[2]] if found else 0
    if value < 1:
        raise BadFlagError(f"{flag}: {text!r} is not a whole number of at least 1")
    return value


def _text(flag: str, text: str | None) -> str:
    if not text:
        raise BadFlagError(f"{flag}: needs a value")
    return text


def _share(flag: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise BadFlagError(f"{flag}: {text!r} is not a share between 0 and 1")
    return value


_OPTION_OF: Final[Mapping[str, tuple[str, Callable[[str, str | None], Any]]]] = {
    "--tensor-parallel-size": ("tensor_parallel", _count),
    "--max-num-seqs": ("max_num_seqs", _count),
    "--max-num-batched-tokens": ("max_num_batched_tokens", _count),
    "--block-size": ("block_size", _count),
    "--kv-cache-dtype": ("kv_cache_dtype", _text),
    "--dtype": ("dtype", _text),
    "--gdn-prefill-backend": ("gdn_prefill_backend", _text),
    "--mamba-ssm-cache-dtype": ("mamba_ssm_cache_dtype", _text),
    "--mamba-cache-dtype": ("mamba_cache_dtype", _text),
    "--attention-backend": ("attention_backend", _text),
    "--gpu-memory-utilization": ("utilisation", _share),
}
_SWITCH_OF: Final[Mapping[str, tuple[str, bool]]] = {
    "--enable-prefix-caching": ("enable_prefix_caching", True),
    "--no-enable-prefix-caching": ("enable_prefix_caching", False),
    "--disable-hybrid-kv-cache-manager": ("disable_hybrid_manager", True),
    "--language-model-only": ("text_only", True),
}
_OURS_ALONE: Final[Mapping[str, str]] = {
    "--max-model-len": "set spec.contextTokens instead",
    "--model": "set spec.model.id instead",
    "--port": "the Service and the probes use 8000",
    "--pipeline-parallel-size": "pipeline parallelism is not planned yet",
    "--data-parallel-size": "use scaling.minReplicas for more engines",
}


def read_overrides(args: Sequence[str]) -> Overrides:
    """What the user's own arguments fix. Raises BadFlagError, which names the argument and a way out."""
    options: dict[str, Any] = {}
    for flag, value in split_args(args):
        if flag in _OURS_ALONE:
            raise BadFlagError(f"{flag} belongs to Plimsoll: {_OURS_ALONE[flag]}")
        if flag in _SWITCH_OF:
            option, setting = _SWITCH_OF[flag]
            options[option] = setting
        elif flag in _OPTION_OF:
            option, read = _OPTION_OF[flag]
            options[option] = read(flag, value)
    utilisation = options.pop("utilisation", None)
    return Overrides(options, utilisation)
