"""Rows of ``plimsoll predict``: JSON objects in, engine starts out, predictions back to JSON."""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from plimsoll.core.kv import EngineOptions, Refusal, Speculation
from plimsoll.core.latency import LatencyEstimate, Load
from plimsoll.core.memory import MemoryFlags
from plimsoll.core.plan.refuse import EngineStart
from plimsoll.core.plan.result import Range
from plimsoll.core.predict import (
    BAD_ROW,
    UNKNOWN_ARCHITECTURE,
    UNKNOWN_MODEL,
    Prediction,
    predict,
)
from plimsoll.core.serve_flags import ServeFlags, read_serve_flags
from plimsoll.core.speculation import Drafting, SpeculationError, read_speculation
from plimsoll.facts import gpus
from plimsoll.facts.engines import NEWEST, NEWEST_RELEASE, OLDEST_RELEASE, EngineVersion
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelConfigError, ModelFacts, UnknownArchitecture

GIB: Final = 1 << 30
LARGEST: Final = 1 << 50
KEYS: Final = (
    "id", "model", "config", "quant_config", "weights_bytes", "engine_version", "gpu", "gpu_memory_bytes", "flags",
    "accepted_tokens_per_step", "available_kv_bytes", "load",
)  # fmt: skip
_LOAD_KEYS: Final = ("prompt_tokens", "output_tokens", "concurrency")
# A GPU nobody described is taken for one of its time: fp8 from 70 GiB on as Hopper, below as Ada.
_LARGE_BYTES: Final = 70 * GIB
_LIKE_LARGE: Final = "NVIDIA-H100-80GB-HBM3"
_LIKE_SMALL: Final = "NVIDIA-L40S"
# vLLM's default except on large GPUs: what to take where nothing says how large the GPU is.
_USUAL_SEQUENCES: Final = 256
# What people call a part that is sold in several sizes, and the commonest of them.
_SHORT: Final[Mapping[str, str]] = {
    "a100": "NVIDIA-A100-SXM4-80GB",
    "gh200": "NVIDIA-GH200-480GB",
    "h100": "NVIDIA-H100-80GB-HBM3",
    "h200": "NVIDIA-H200",
    "rtx pro 6000": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
}
_AMD: Final = re.compile(r"\b(?:amd|instinct|radeon|mi\d{3})", re.IGNORECASE)
# How far a given size may be from a known product's and still mean it: as measured, as sold.
_SAME: Final = 0.002
_NEAR: Final = 0.12


@lru_cache(maxsize=256)
def _find(name: str) -> GPU | None:
    return gpus.find(name) or gpus.find(_SHORT.get(_shortened(name), ""))


def _shortened(name: str) -> str:
    return name.strip().lower().replace("-", " ").removeprefix("nvidia ")


class BadRowError(ValueError):
    """A row that cannot be used; the message names field, value and what is allowed."""


class UnknownModelError(ValueError):
    """A model that no source knows; the message says how to give its configuration."""


@dataclass(frozen=True)
class ModelRequest:
    """How a row names its model: a catalogue name, or a configuration (an object, or a path to read)."""

    model: str | None
    config: str | Mapping[str, Any] | None
    quant_config: str | Mapping[str, Any] | None
    weights_bytes: int | None
    hf_overrides: Mapping[str, Any]


ModelSource = Callable[[ModelRequest], ModelFacts]
"""Finds a model's facts. Raises BadRowError, UnknownModelError, ModelConfigError, UnknownArchitecture."""


def answer(row: object, source: ModelSource) -> dict[str, Any]:
    """The output object of one row; never raises for what a row holds."""
    row_id = row.get("id") if isinstance(row, Mapping) else None
    try:
        return _answer(row, source)
    except BadRowError as error:
        return bad_row(row_id, str(error))
    except ModelConfigError as error:
        return bad_row(row_id, f"config: {error}")
    except UnknownArchitecture as error:
        return _unknown(row_id, UNKNOWN_ARCHITECTURE, str(error))
    except UnknownModelError as error:
        return _unknown(row_id, UNKNOWN_MODEL, str(error))


def bad_row(row_id: object, message: str) -> dict[str, Any]:
    """The answer to a row that cannot be read."""
    return _unknown(row_id, BAD_ROW, message)


def _unknown(row_id: object, reason: str, message: str) -> dict[str, Any]:
    return {
        "id": _echoed(row_id),
        "outcome": "unknown",
        "outcome_at_low": "unknown",
        "reason": reason,
        "message": message,
    }


def _answer(row: object, source: ModelSource) -> dict[str, Any]:
    fields = _fields(row)
    version, notes = _version(fields.get("engine_version"))
    notes += _taken_for(fields.get("gpu"))
    available = _bytes(fields, "available_kv_bytes", least=0)
    try:
        flags = read_serve_flags(_object(fields, "flags") or {}, version)
        device = _device(fields, needs_memory=available is None and "kv_cache_memory_bytes" not in flags.memory)
        drafting = _speculation(flags.speculative, source)
        start = _start(fields, flags, version, device, source, drafting.speculation)
    except Refusal as refusal:
        found = Prediction("refused", "refused", refusal.reason, refusal.message)
        return _output(fields.get("id"), found, notes)
    if device == "cpu" and available is None:
        available = start.flags.kv_cache_memory_bytes
    found = predict(
        start,
        available_bytes=available,
        load=_load(fields),
        accepted_tokens_per_step=_number(fields, "accepted_tokens_per_step"),
    )
    return _output(fields.get("id"), found, (*notes, *drafting.notes))


def _fields(row: object) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise BadRowError(f"a row is a JSON object, not a {type(row).__name__}")
    for key in row:
        if key not in KEYS:
            close = difflib.get_close_matches(str(key), KEYS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(KEYS)}"
            raise BadRowError(f"{key!r} is not a field of a row{hint}")
    if row.get("model") is None and row.get("config") is None:
        raise BadRowError("model or config: one of them is needed")
    return row


def _version(written: object) -> tuple[EngineVersion, tuple[str, ...]]:
    """The release, or the nearest one we have rules for with a note that says so."""
    if written is None:
        return EngineVersion.parse(NEWEST), ()
    if not isinstance(written, str):
        raise BadRowError(f"engine_version: {written!r} is not a text such as {NEWEST!r}")
    try:
        return EngineVersion.parse(written), ()
    except ValueError as error:
        major_minor = _release(written)
        if major_minor is None:
            raise BadRowError(f"engine_version: {error}") from None
        nearest = OLDEST_RELEASE if major_minor < OLDEST_RELEASE else NEWEST_RELEASE
        note = f"engine_version {written}: rules are known for 0.10 to 0.33; the nearest release was taken"
        return EngineVersion(*nearest), (note,)


def _release(written: str) -> tuple[int, int] | None:
    parts = written.strip().lstrip("v").split(".")
    if len(parts) < 2 or not all(part.isdecimal() and len(part) <= 3 for part in parts[:2]):  # noqa: PLR2004
        return None
    return int(parts[0]), int(parts[1])


def _device(fields: Mapping[str, Any], *, needs_memory: bool) -> GPU | str:
    """The GPU, ``cpu``, or one made of nothing but its memory."""
    name, size = fields.get("gpu"), _bytes(fields, "gpu_memory_bytes", least=1)
    if name is not None and not isinstance(name, str):
        raise BadRowError(f"gpu: {name!r} is not a product name or 'cpu'")
    if name is not None and name.strip().lower() == "cpu":
        if needs_memory:
            raise BadRowError("gpu: cpu needs available_kv_bytes, or kv_cache_memory_bytes among the flags")
        return "cpu"
    known = _find(name) if name else None
    if known is not None:
        return as_cuda(known if size is None else _with_memory(known, known.name, _seen(known, size)))
    if size is None and needs_memory:
        wanted = f"gpu: {name!r} is not known" if name else "gpu, gpu_memory_bytes or available_kv_bytes: one is needed"
        close = f" (nearest: {', '.join(gpus.nearest(name))})" if name and gpus.nearest(name) else ""
        raise BadRowError(f"{wanted}{close}; gpu_memory_bytes makes any GPU usable" if name else wanted)
    size = size or _LARGE_BYTES + GIB
    like = _like(size)
    vendor = "amd" if name and _AMD.search(name) else "nvidia"
    made = _with_memory(like, name or "a GPU known only by its memory", _nominal(size))
    # Its speeds are anybody's guess: none are known, and so no latency is.
    return replace(made, vendor=vendor, bandwidth_bytes_per_second=0.0, dense_flops={})


def as_cuda(gpu: GPU) -> GPU:
    """Layouts are CUDA's: another vendor's part is planned with the kernels of a GPU of its size."""
    return gpu if gpu.capability is not None else replace(gpu, capability=_like(gpu.torch_total_bytes).capability)


def _taken_for(name: object) -> tuple[str, ...]:
    """Says which size of a part was meant where its name leaves it open."""
    if not isinstance(name, str) or _shortened(name) not in _SHORT or gpus.find(name) is not None:
        return ()
    return (f"gpu {name}: taken for {_SHORT[_shortened(name)]}",)


def _like(size: int) -> GPU:
    found = _find(_LIKE_LARGE if size >= _LARGE_BYTES else _LIKE_SMALL)
    assert found is not None  # noqa: S101 # tests read the file of GPUs
    return found


def _seen(known: GPU, size: int) -> int:
    """What the engine sees of a known product: its own figure for the driver's or the nominal size, else as given."""
    tolerance = _NEAR if _is_nominal(size) else _SAME
    same = abs(size - known.memory_driver_bytes) <= tolerance * known.memory_driver_bytes
    return known.torch_total_bytes if same else _nominal(size)


def _is_nominal(size: int) -> bool:
    """Whole GiB or GB: the size a product is sold with."""
    return size % GIB == 0 or size % 10**9 == 0


def _nominal(size: int) -> int:
    """Of a nominal size the engine sees a little less; any other figure is believed to be the engine's."""
    return gpus.torch_total_bytes(size) if _is_nominal(size) else size


def _with_memory(gpu: GPU, name: str, size: int) -> GPU:
    return replace(gpu, name=name, torch_total_bytes=size, memory_driver_bytes=size)


def _start(
    fields: Mapping[str, Any],
    flags: ServeFlags,
    version: EngineVersion,
    device: GPU | str,
    source: ModelSource,
    speculation: Speculation | None,
) -> EngineStart:
    request = ModelRequest(
        model=_text(fields, "model"),
        config=_object_or_path(fields, "config"),
        quant_config=_object_or_path(fields, "quant_config"),
        weights_bytes=_bytes(fields, "weights_bytes", least=1),
        hf_overrides=flags.hf_overrides,
    )
    facts = source(request)
    settings = _portable(flags.options, device)
    if fields.get("gpu") is None and fields.get("gpu_memory_bytes") is None:
        settings.setdefault("max_num_seqs", _USUAL_SEQUENCES)
    options = EngineOptions(
        device="cpu" if isinstance(device, str) else device,
        version=version,
        speculation=speculation,
        **settings,
    )
    return EngineStart(facts, options, MemoryFlags(**flags.memory))


def _portable(options: Mapping[str, Any], device: GPU | str) -> dict[str, Any]:
    """Options without what only another vendor's kernels understand: their names and their block sizes."""
    foreign = not isinstance(device, str) and device.vendor != "nvidia"
    if foreign or str(options.get("attention_backend", "")).startswith("ROCM"):
        return {key: value for key, value in options.items() if key not in {"attention_backend", "block_size"}}
    return dict(options)


def _speculation(written: Mapping[str, Any], source: ModelSource) -> Drafting:
    """Speculative decoding; a draft model that no source knows costs nothing in the estimate, which says so."""

    def find(name: str) -> ModelFacts | None:
        try:
            return source(ModelRequest(name, None, None, None, {}))
        except (UnknownModelError, UnknownArchitecture, ModelConfigError):
            return None

    try:
        found = read_speculation(written, find)
    except SpeculationError as error:
        raise BadRowError(f"flags.speculative_config.{error}") from error
    if found.unknown:
        note = f"speculation: nothing is known of {found.unknown}: its weights and cache are not counted"
        return replace(found, notes=(*found.notes, note))
    return found


def _load(fields: Mapping[str, Any]) -> Load | None:
    written = _object(fields, "load")
    if written is None:
        return None
    unknown = [key for key in written if key not in _LOAD_KEYS]
    if unknown:
        raise BadRowError(f"load.{unknown[0]}: not a field of load; known: {', '.join(_LOAD_KEYS)}")
    return Load(*(_bytes(written, key, least=0 if key == "output_tokens" else 1, needed="load.") for key in _LOAD_KEYS))  # type: ignore[arg-type] # needed ones are never None


def _bytes(fields: Mapping[str, Any], key: str, *, least: int, needed: str = "") -> int | None:
    value = fields.get(key)
    if value is None and not needed:
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise BadRowError(f"{needed}{key}: {_short(value)} is not a whole number from {least} to 2^50")
    return value


def _number(fields: Mapping[str, Any], key: str) -> float | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:  # noqa: PLR2004
        raise BadRowError(f"{key}: {_short(value)} is not a number above 0")
    return float(value)


def _text(fields: Mapping[str, Any], key: str) -> str | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise BadRowError(f"{key}: {_short(value)} is not a text")
    return value


def _object(fields: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise BadRowError(f"{key}: {_short(value)} is not an object")
    return value


def _object_or_path(fields: Mapping[str, Any], key: str) -> str | Mapping[str, Any] | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, str | Mapping):
        raise BadRowError(f"{key}: {_short(value)} is neither an object nor a path")
    return value


def _short(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 200:  # noqa: PLR2004
        return f"a number of {value.bit_length()} bits"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"  # noqa: PLR2004


def _output(row_id: object, found: Prediction, notes: tuple[str, ...]) -> dict[str, Any]:
    latency = found.latency
    return {
        "id": _echoed(row_id),
        "outcome": found.outcome,
        "outcome_at_low": found.outcome_at_low,
        "reason": found.reason,
        "message": "; ".join(part for part in (found.message, *found.assumptions, *notes) if part),
        "needed_bytes": found.needed_bytes,
        "estimated_max_model_len": found.estimated_max_model_len,
        "available_kv_bytes": _range(found.available_kv_bytes),
        "weights_bytes": found.weights_bytes,
        "memory": [{"item": item.item, "bytes": item.bytes, "basis": item.basis} for item in found.memory],
        "block_size": found.block_size,
        "bytes_per_block": found.bytes_per_block,
        "num_blocks": found.num_blocks,
        "kv_cache_size_tokens": found.kv_cache_size_tokens,
        "max_concurrency": None if found.max_concurrency is None else round(found.max_concurrency, 6),
        "blocks_per_request": found.blocks_per_request,
        "ttft_ms": _latency(latency, "ttft_ms"),
        "tpot_ms": _latency(latency, "tpot_ms"),
    }


def _echoed(row_id: object) -> object:
    """The row's own id where it is a text or a number that JSON can write."""
    if isinstance(row_id, float):
        return row_id if math.isfinite(row_id) else None
    return row_id if isinstance(row_id, str | int) else None


def _latency(latency: LatencyEstimate | None, key: str) -> dict[str, float] | None:
    return None if latency is None else _range(getattr(latency, key))


def _range(found: Range | None) -> dict[str, float] | None:
    return None if found is None else {"low": found.low, "mid": found.mid, "high": found.high}
