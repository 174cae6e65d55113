"""``/metrics`` of one engine: exactly the names, labels and buckets of a recorded page, with this engine's values."""

from __future__ import annotations

import math
import re
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from e2e.fleet import recordings

INFO = "vllm:cache_config_info"
PROCESS_START = ("process_start_time_seconds",)
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
    """One line of the page: its name and labels."""

    name: str
    labels: Labels

    @property
    def key(self) -> str:
        """What tells the series of one engine apart: every page has one engine and one model."""
        return _key(self.name, (pair for pair in self.labels if pair[0] not in {"engine", "model_name"}))


@dataclass(frozen=True)
class _Template:
    """Lines of the page: comments as text, series as samples; token buckets follow the model's length."""

    lines: tuple[str | Sample, ...]
    bounds: Mapping[str, tuple[float, ...]]
    bucket_keys: Mapping[str, tuple[str, ...]]


class MetricsPage:
    """Counters, gauges and histograms of one engine, rendered as Prometheus text.

    ``count`` and ``observe`` are the recorder an engine reports to; ``gauge`` sets what is read at scrape time.
    Buckets are kept cumulative, so that a scrape, the frequent event of an idle fleet, only joins text.
    """

    def __init__(self, model_name: str, max_model_len: int, cache_config: Mapping[str, str]) -> None:
        self._template = template = _template(max_model_len)
        self._lines = [_line(line, model_name, cache_config) for line in template.lines]
        self._values: defaultdict[str, float] = defaultdict(float)
        now = time.time()
        for sample in template.lines:
            if isinstance(sample, Sample) and (sample.name.endswith("_created") or sample.name in PROCESS_START):
                self._values[sample.key] = now
            elif isinstance(sample, Sample) and sample.name == INFO:
                self._values[sample.key] = 1.0

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter; ``name`` without prefix and ``_total``."""
        self._values[_key(f"vllm:{name}_total", sorted(labels.items()))] += amount

    def gauge(self, name: str, value: float, **labels: str) -> None:
        self._values[_key(f"vllm:{name}", sorted(labels.items()))] = value

    def observe(self, name: str, value: float) -> None:
        """Add to a histogram; ``name`` without prefix."""
        name = f"vllm:{name}"
        smallest = bisect_left(self._template.bounds[name], value)
        for key in self._template.bucket_keys[name][smallest:]:
            self._values[key] += 1
        self._values[f"{name}_count"] += 1
        self._values[f"{name}_sum"] += value

    def render(self) -> str:
        values = self._values
        lines = [prefix if key is None else f"{prefix} {values.get(key, 0.0)}" for prefix, key in self._lines]
        return "\n".join(lines) + "\n"


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


def stamped(page: str) -> str:
    """The page with the time of this moment on every series, as a push gateway or a federation passes it on."""
    return re.sub(r"(?m)^(vllm:.*) (\S+)$", rf"\1 \2 {round(time.time() * 1000)}", page)


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


def _key(name: str, labels: Iterable[tuple[str, str]]) -> str:
    return name if name == INFO else name + "".join(f",{label}={value}" for label, value in labels)


def _line(line: str | Sample, model_name: str, cache_config: Mapping[str, str]) -> tuple[str, str | None]:
    """The text before the value, and the value's key; a comment has none."""
    if isinstance(line, str):
        return line, None
    labels = dict(line.labels)
    if line.name == INFO:
        labels |= {name: value for name, value in cache_config.items() if name in labels}
    elif "model_name" in labels:
        labels["model_name"] = model_name
    text = ",".join(f'{name}="{_escape(value)}"' for name, value in sorted(labels.items()))
    return (f"{line.name}{{{text}}}" if text else line.name), line.key


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@lru_cache(maxsize=64)
def _template(max_model_len: int) -> _Template:
    lines: list[str | Sample] = []
    buckets: dict[str, list[Sample]] = {}
    for line in map(_parse, recordings.metrics_page().splitlines()):
        name = line.name.removesuffix("_bucket") if isinstance(line, Sample) else ""
        if not isinstance(line, Sample) or not line.name.endswith("_bucket") or not name.startswith("vllm:"):
            lines.append(line)
        elif name not in TOKEN_HISTOGRAMS:
            buckets.setdefault(name, []).append(line)
            lines.append(line)
        elif name not in buckets:
            buckets[name] = [_with_edge(line, bound) for bound in [*_one_two_five(max_model_len), math.inf]]
            lines += buckets[name]
    return _Template(
        lines=tuple(lines),
        bounds={name: tuple(float(dict(s.labels)["le"]) for s in samples) for name, samples in buckets.items()},
        bucket_keys={name: tuple(sample.key for sample in samples) for name, samples in buckets.items()},
    )


def _with_edge(sample: Sample, bound: float) -> Sample:
    edge = "+Inf" if math.isinf(bound) else str(bound)
    return Sample(sample.name, tuple(sorted((dict(sample.labels) | {"le": edge}).items())))


def _one_two_five(limit: int) -> list[float]:
    """Token buckets: 1, 2, 5, 10 … up to the model's length (vLLM ``v1/metrics/buckets.py``)."""
    series = (digit * 10**power for power in range(12) for digit in (1, 2, 5))
    return [float(value) for value in series if value <= limit]
