"""Fit the memory model's coefficients to public start-up logs, and print how well it predicts logs it has not seen.

    python tools/fit_memory.py [startup-logs.jsonl[.gz]] [--write]

Each line is one engine start; ``config_file`` is relative to the file, or ``{"config_file": …, "config": {…}}`` lines
in the file itself carry the configurations. ``--write`` replaces ``coefficients.json``. The log's own weight figure is
used to fit what is reserved beside weights, never to predict: predictions take weights from the configuration.
"""

import argparse
import gzip
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from plimsoll.core.kv import EngineOptions, Refusal, Speculation
from plimsoll.core.memory.budget import MemoryBudget, budget, requested_bytes
from plimsoll.core.memory.coefficients import Coefficients, fitted
from plimsoll.core.memory.flags import MemoryFlags
from plimsoll.core.memory.reserve import reserve
from plimsoll.core.memory.step import Step, read_step
from plimsoll.facts import gpus
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.models import ModelConfigError, ModelFacts, UnknownArchitecture, read_model

GIB: Final = 1 << 30
DATA: Final = Path(__file__).parents[1] / "tests" / "data" / "memory" / "startup-logs.jsonl.gz"
COEFFICIENTS: Final = Path(__file__).parents[1] / "operator" / "plimsoll" / "core" / "memory" / "coefficients.json"

# Found by search: the physical prior, and the step to begin with.
FREE: Final[Mapping[str, float]] = {
    "sort_bytes_per_logit": 4,
    "sample_bytes_per_logit": 2,
    "hidden_states": 0.3,
    "layer_activations": 0.2,
    "encoder_activations": 3,
    "encoder_outputs": 0.5,
    "moe_workspace": 0.2,
    "fixed_bytes": 2**25,
    "non_torch_single_bytes": 2**26,
    "non_torch_group_bytes": 2**27,
    "non_torch_rank_bytes": 2**24,
    "non_torch_before_bytes": 2**24,
}
SWEEPS: Final = 6


@dataclass(frozen=True)
class Start:
    """One engine start that a log tells of."""

    id: str
    model: str
    kind: str
    eval: bool
    facts: ModelFacts
    options: EngineOptions
    flags: MemoryFlags
    step: Step
    requested: int
    kv_bytes: int
    reserved: int | None

    def predict(self, fit: Coefficients) -> MemoryBudget:
        """The model's answer."""
        return budget(self.facts, self.options, self.flags, fit)


def read_starts(path: Path) -> Iterator[Start]:
    """Good starts whose pool, device and version the log shows."""
    configs: dict[str, Any] = {}
    text = path.read_bytes()
    for line in (gzip.decompress(text) if path.suffix == ".gz" else text).splitlines():
        row = json.loads(line)
        if "config" in row:
            configs[row["config_file"]] = row["config"]
            continue
        start = _start(row, configs, path.parent)
        if start is not None:
            yield start


def _start(row: Mapping[str, Any], configs: Mapping[str, Any], folder: Path) -> Start | None:
    kv_gib, version = row["available_kv_cache_gib"], row["vllm_version"]
    if row["outcome"] != "ok" or row["contaminated"] or not kv_gib or not version or not row["config_file"]:
        return None
    device = _device(row)
    name = row["config_file"]
    config = configs[name] if name in configs else json.loads((folder / name).read_text(encoding="utf-8"))
    try:
        facts = read_model(config)
        options = _options(row, device, EngineVersion.parse(version)) if device else None
        flags = _flags(row)
        step = read_step(facts, options, flags) if options else None
    except (ModelConfigError, UnknownArchitecture, Refusal, ValueError):
        return None
    if options is None or step is None or device is None:
        return None
    requested = requested_bytes(device.torch_total_bytes, options, flags)
    weights = row["model_weights_gib"]
    return Start(
        id=row["id"],
        model=row["model"],
        kind=_kind(row["gpu"] or ""),
        eval=row["eval"],
        facts=facts,
        options=options,
        flags=flags,
        step=step,
        requested=requested,
        kv_bytes=round(kv_gib * GIB),
        reserved=round(requested - (weights + kv_gib) * GIB) if weights else None,
    )


def _device(row: Mapping[str, Any]) -> gpus.GPU | None:
    known = gpus.find(row["gpu"]) if row["gpu"] else None
    total, nominal = row["total_memory_gib"], row["gpu_memory_gib_nominal"]
    if total:
        size = round(total * GIB)
    elif known is not None:
        return known
    elif nominal:
        size = gpus.torch_total_bytes(nominal * GIB)
    else:
        return None
    base = known or gpus.find("NVIDIA-H100-80GB-HBM3")
    assert base is not None  # noqa: S101 # the file of GPUs is ours
    name = row["gpu"] or "unknown"
    return replace(base, name=name, torch_total_bytes=size, memory_driver_bytes=size)


def _options(row: Mapping[str, Any], device: gpus.GPU, version: EngineVersion) -> EngineOptions:
    other = row["other_flags"] or {}
    speculative = row["speculative"] or {}
    return EngineOptions(
        device=device,
        version=version,
        tensor_parallel=row["tensor_parallel"] or 1,
        pipeline_parallel=row["pipeline_parallel"] or 1,
        dtype=row["weight_dtype"] or "auto",
        max_model_len=row["max_model_len"],
        max_num_batched_tokens=row["max_num_batched_tokens"],
        max_num_seqs=row["max_num_seqs"],
        text_only=(other.get("limit_mm_per_prompt") or {}).get("image") == 0,
        allow_long_max_model_len=True,
        speculation=Speculation(speculative.get("method", "mtp"), speculative.get("num_speculative_tokens", 1))
        if speculative
        else None,
    )


def _flags(row: Mapping[str, Any]) -> MemoryFlags:
    other = row["other_flags"] or {}
    return MemoryFlags(
        gpu_memory_utilization=row["gpu_memory_utilization"],
        quantization=row["quantization"],
        enforce_eager=bool(row["enforce_eager"]),
        expert_parallel=bool(row["expert_parallel"]),
        data_parallel=row["data_parallel"] or 1,
        whole_encoders=other.get("mm_encoder_tp_mode") == "data",
        unprofiled_encoders=bool(other.get("skip_mm_profiling")),
        pooling=other.get("runner") == "pooling",
        max_cudagraph_capture_size=other.get("max_cudagraph_capture_size"),
    )


def _kind(gpu: str) -> str:
    if any(name in gpu for name in ("GB10", "GH200")):
        return "unified"
    return "amd" if any(name in gpu for name in ("AMD", "Instinct", "Radeon")) else "nvidia"


def fit(starts: Sequence[Start], begin: Coefficients, sweeps: int) -> Coefficients:
    """Coordinate search for the coefficients with the least mean absolute error of what is reserved."""
    known = [(start.step, start.reserved) for start in starts if start.reserved is not None and start.reserved > 0]

    def error(candidate: Coefficients) -> float:
        return sum(abs(reserved_bytes(step, candidate) - truth) for step, truth in known)

    best, steps = begin, dict(FREE)
    for _ in range(sweeps):
        for name in FREE:
            best, improved = _along(best, name, steps[name], error)
            steps[name] *= 1 if improved else 0.5
    return best


def _along(
    begin: Coefficients, name: str, step: float, error: Callable[[Coefficients], float]
) -> tuple[Coefficients, bool]:
    best, least = begin, error(begin)
    for direction in (step, -step):
        while True:
            value = max(0.0, getattr(best, name) + direction)
            candidate = replace(best, **{name: round(value) if name.endswith("_bytes") else value})
            found = error(candidate)
            if found >= least or candidate == best:
                break
            best, least = candidate, found
    return best, best is not begin


def reserved_bytes(step: Step, candidate: Coefficients) -> int:
    """What the model reserves beside weights."""
    return sum(item.bytes for item in reserve(step, candidate))


@dataclass(frozen=True)
class Outcome:
    """One prediction beside its truth, bytes."""

    start: Start
    low: float
    mid: float
    high: float

    @property
    def relative(self) -> float:
        """Error of the pool, over the pool."""
        return abs(self.mid - self.start.kv_bytes) / self.start.kv_bytes

    @property
    def of_requested(self) -> float:
        """Error of the pool, over the memory the engine may use."""
        return abs(self.mid - self.start.kv_bytes) / self.start.requested


def leave_one_model_out(starts: Sequence[Start], whole: Coefficients) -> list[Outcome]:
    """Each start predicted by coefficients that never saw its model."""
    outcomes = []
    training = [start for start in starts if start.kind == "nvidia"]
    for model in dict.fromkeys(start.model for start in starts):
        others = fit([start for start in training if start.model != model], whole, 2)
        for start in starts:
            if start.model == model:
                left = start.predict(others).available_kv_bytes
                outcomes.append(Outcome(start, left.low, left.mid, left.high))
    return outcomes


def report(name: str, outcomes: Sequence[Outcome]) -> None:
    """Print the figures of a group of starts."""
    if not outcomes:
        return
    large = [outcome.relative for outcome in outcomes if outcome.start.kv_bytes >= 10 * GIB]
    within = sum(outcome.low <= outcome.start.kv_bytes <= outcome.high for outcome in outcomes)
    too_high = sum(outcome.low > 1.02 * outcome.start.kv_bytes for outcome in outcomes)
    width = statistics.median((outcome.high - outcome.low) / outcome.start.requested for outcome in outcomes)
    figures = {
        "starts": len(outcomes),
        "median error of KV": f"{statistics.median(outcome.relative for outcome in outcomes):.2%}",
        "mean, pools of 10 GiB and more": f"{statistics.mean(large):.2%}" if large else "-",
        "mean of utilisation × memory": f"{statistics.mean(outcome.of_requested for outcome in outcomes):.2%}",
        "mean error of KV": f"{statistics.mean(outcome.relative for outcome in outcomes):.2%}",
        "within low–high": f"{within / len(outcomes):.1%}",
        "low above truth by more than 2 %": f"{too_high / len(outcomes):.1%}",
        "median width of utilisation × memory": f"{width:.2%}",
    }
    print(name, *(f"  {label:40} {value}" for label, value in figures.items()), sep="\n")


def main() -> None:
    """Fit, print, and write when asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--write", action="store_true", help="replace coefficients.json")
    parser.add_argument("--rows", action="store_true", help="print each start")
    arguments = parser.parse_args()
    starts = list(read_starts(arguments.data))
    whole = fit([start for start in starts if start.kind == "nvidia"], fitted(), SWEEPS)
    outcomes = leave_one_model_out(starts, whole)
    if arguments.rows:
        for outcome in sorted(outcomes, key=lambda outcome: outcome.of_requested):
            _print_row(outcome)
    report("judged starts, leave one model out", [outcome for outcome in outcomes if outcome.start.eval])
    for kind in ("nvidia", "unified", "amd"):
        report(f"{kind}, all starts", [outcome for outcome in outcomes if outcome.start.kind == kind])
    print(json.dumps(_rounded(whole), indent=1))
    if arguments.write:
        COEFFICIENTS.write_text(json.dumps(_rounded(whole), indent=1) + "\n", encoding="utf-8")


def _print_row(outcome: Outcome) -> None:
    start = outcome.start
    low, mid, high, truth = (value / GIB for value in (outcome.low, outcome.mid, outcome.high, start.kv_bytes))
    mark = " " if low <= truth <= high else "!"
    label = f"{start.id} {start.options.version} {start.model[-36:]:36} TP{start.options.tensor_parallel}"
    print(f"{mark}{'e' if start.eval else ' '} {label} {low:7.2f} {mid:7.2f} {high:7.2f} truth {truth:7.2f} "
          f"{outcome.relative:7.1%} {outcome.of_requested:6.1%} {start.kind}")  # fmt: skip


def _rounded(found: Coefficients) -> dict[str, float]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(found).items()}


if __name__ == "__main__":
    main()
