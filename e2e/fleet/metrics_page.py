"""``/metrics`` of one engine: exactly the names, labels and buckets of a recorded page, with this engine's values."""

from __future__ import annotations

import math
import re
import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from e2e.fleet import recordings

INFO = "vllm:cache_config_info"
TOKEN_HISTOGRAMS = frozenset(
    {
        "vllm:request_prompt_tokens",
        "vllm:request_generation_tokens",
        "vllm:request_max_num_generation_tokens",
        "vllm:request_params_max_tokens",
        "vllm:request_prefill_kv_computed_tokens",
    }
)
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Sample:
    """One line of the page: its name and the labels that tell series of one engine apart."""

    name: str
    labels: Labels

    @property
    def own_labels(self) -> Labels:
        return tuple(pair for pair in self.labels if pair[0] not in {"engine", "model_name"})


@dataclass(frozen=True)
class _Template:
    """Lines of the page: comments as text, series as samples; token buckets follow the model's length."""

    lines: tuple[str | Sample, ...]
    bounds: Mapping[str, tuple[float, ...]]


class MetricsPage:
    """Counters, gauges and histograms of one engine, rendered as Prometheus text.

    ``count`` and ``observe`` are the recorder an engine reports to; ``gauge`` sets what is read at scrape time.
    """

    def __init__(self, model_name: str, max_model_len: int, cache_config: Mapping[str, str]) -> None:
        template = _template(max_model_len)
        self._bounds = template.bounds
        self._values: dict[tuple[str, Labels], float] = {}
        self._buckets = {name: [0] * len(bounds) for name, bounds in template.bounds.items()}
        self._sums = dict.fromkeys(template.bounds, 0.0)
        self._lines = [_line(line, model_name, cache_config) for line in template.lines]
        self._created = time.time()

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter; ``name`` without prefix and ``_total``."""
        key = (f"vllm:{name}_total", tuple(sorted(labels.items())))
        self._values[key] = self._values.get(key, 0.0) + amount

    def gauge(self, name: str, value: float, **labels: str) -> None:
        self._values[f"vllm:{name}", tuple(sorted(labels.items()))] = value

    def observe(self, name: str, value: float) -> None:
        """Add to a histogram; ``name`` without prefix."""
        name = f"vllm:{name}"
        self._buckets[name][bisect_left(self._bounds[name], value)] += 1
        self._sums[name] += value

    def render(self) -> str:
        cumulative = {name: _cumulate(self._bounds[name], counts) for name, counts in self._buckets.items()}
        out = []
        for prefix, sample in self._lines:
            out.append(prefix if sample is None else f"{prefix} {self._value(sample, cumulative)}")
        return "\n".join(out) + "\n"

    def _value(self, sample: Sample, cumulative: Mapping[str, Mapping[str, int]]) -> float:
        name = sample.name
        if name == INFO:
            return 1.0
        if name.endswith("_created"):
            return self._created
        family, _, part = name.rpartition("_")
        if family in cumulative and part in {"bucket", "count", "sum"}:
            bounds = cumulative[family]
            edge = dict(sample.labels).get("le", "+Inf")
            return self._sums[family] if part == "sum" else float(bounds[edge])
        return self._values.get((name, sample.own_labels), 0.0)


def old_names(page: str) -> str:
    """The page as releases before 0.11 spelled it."""
    renames = {
        "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
        "vllm:prefix_cache_": "vllm:gpu_prefix_cache_",
        "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
    }
    for new, old in renames.items():
        page = page.replace(new, old)
    return page


def not_a_number(page: str) -> str:
    return re.sub(r"(?m)^(vllm:.*) \S+$", r"\1 NaN", page)


def duplicated(page: str) -> str:
    """Every engine series a second time under another model name: a sum over the pod counts all twice."""
    series = [line for line in page.splitlines() if "model_name=" in line]
    again = [re.sub(r'model_name="([^"]*)"', r'model_name="\1-duplicate"', line) for line in series]
    return page + "\n".join(again) + "\n"


def samples(page: str) -> list[Sample]:
    """The series of a page, in order."""
    parsed = (_parse(line) for line in page.splitlines())
    return [line for line in parsed if isinstance(line, Sample)]


def _parse(line: str) -> str | Sample:
    match = _SAMPLE.match(line)
    return Sample(match[1], tuple(sorted(_LABEL.findall(match[2] or "")))) if match else line


def _line(line: str | Sample, model_name: str, cache_config: Mapping[str, str]) -> tuple[str, Sample | None]:
    if isinstance(line, str):
        return line, None
    labels = dict(line.labels)
    if line.name == INFO:
        labels |= {name: value for name, value in cache_config.items() if name in labels}
    elif "model_name" in labels:
        labels["model_name"] = model_name
    text = ",".join(f'{name}="{_escape(value)}"' for name, value in sorted(labels.items()))
    return (f"{line.name}{{{text}}}" if text else line.name), line


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@lru_cache(maxsize=64)
def _template(max_model_len: int) -> _Template:
    lines: list[str | Sample] = []
    bounds: dict[str, list[float]] = {}
    for line in map(_parse, recordings.metrics_page().splitlines()):
        name = line.name.removesuffix("_bucket") if isinstance(line, Sample) else ""
        if not isinstance(line, Sample) or not line.name.endswith("_bucket") or not name.startswith("vllm:"):
            lines.append(line)
        elif name not in TOKEN_HISTOGRAMS:
            bounds.setdefault(name, []).append(float(dict(line.labels)["le"]))
            lines.append(line)
        elif name not in bounds:
            bounds[name] = [*_one_two_five(max_model_len), math.inf]
            lines += [_with_edge(line, bound) for bound in bounds[name]]
    return _Template(tuple(lines), {name: tuple(edges) for name, edges in bounds.items()})


def _with_edge(sample: Sample, bound: float) -> Sample:
    return Sample(sample.name, tuple(sorted((dict(sample.labels) | {"le": _edge(bound)}).items())))


def _one_two_five(limit: int) -> list[float]:
    """Token buckets: 1, 2, 5, 10 … up to the model's length (vLLM ``v1/metrics/buckets.py``)."""
    series = (digit * 10**power for power in range(12) for digit in (1, 2, 5))
    return [float(value) for value in series if value <= limit]


def _edge(bound: float) -> str:
    return "+Inf" if math.isinf(bound) else str(bound)


def _cumulate(bounds: tuple[float, ...], counts: list[int]) -> dict[str, int]:
    total, out = 0, {}
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        out[_edge(bound)] = total
    return out
