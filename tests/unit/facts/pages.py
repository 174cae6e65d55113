"""What the truth layer reads of an engine's /metrics page: names, types and labels, and what a page lacks of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.core.promql import POOL_LABELS
from plimsoll.core.signals import Signal
from plimsoll.facts import engine_metrics as names
from plimsoll.facts.engine_metrics import EngineMetric
from plimsoll.facts.engines import EngineVersion

_POOL_TOKENS_SINCE: Final = 25
"""First recorded release (0.x) whose ``cache_config_info`` says the pool's tokens."""


@dataclass(frozen=True)
class Read:
    """One quantity as the queries need it."""

    metric: EngineMetric
    type: str
    labels: frozenset[str] = frozenset({"engine"})

    def sample(self, name: str) -> str:
        """The series that is asked for: of a histogram its buckets."""
        return f"{name}_bucket" if self.type == "histogram" else name


READ: Final = (
    Read(names.KV_USE, "gauge"),
    Read(names.RUNNING, "gauge"),
    Read(names.WAITING, "gauge"),
    Read(names.PREEMPTIONS, "counter"),
    Read(names.FINISHED, "counter", frozenset({"engine", "finished_reason"})),
    Read(names.PROMPT_TOKENS, "counter"),
    Read(names.GENERATION_TOKENS, "counter"),
    Read(names.PREFIX_QUERIES, "counter"),
    Read(names.PREFIX_HITS, "counter"),
    Read(names.REJECTIONS, "counter", frozenset({"reason"})),  # counted in the API server, before any engine
    Read(names.TTFT, "histogram", frozenset({"engine", "le"})),
    Read(names.ITL, "histogram", frozenset({"engine", "le"})),
    Read(names.TIME_PER_TOKEN, "histogram", frozenset({"engine", "le"})),
    Read(names.REQUEST, "histogram", frozenset({"engine", "le"})),
    Read(names.CACHE_CONFIG, "gauge"),
)


def lacking(page: str, release: str) -> Iterator[str]:
    """What the page of a release lacks, one line each."""
    version = EngineVersion.parse(release)
    types: dict[str, str] = {}
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            types[sample.name] = family.type
            labels.setdefault(sample.name, set()).update(sample.labels)
    for read in READ:
        if read.metric.first and version < EngineVersion.parse(read.metric.first):
            continue
        yield from _lacking(read, version, types, labels)


def _lacking(read: Read, version: EngineVersion, types: dict[str, str], labels: dict[str, set[str]]) -> Iterator[str]:
    found = next((name for name in map(read.sample, read.metric.names) if name in types), None)
    if found is None:
        yield f"{read.metric.names[0]}: none of {', '.join(read.metric.names)} is there"
        return
    if types[found] != read.type:
        yield f"{found} is a {types[found]}, not a {read.type}"
    missing = _wanted(read, version) - labels[found]
    if missing:
        yield f"{found} has no label {', '.join(sorted(missing))}"


def _wanted(read: Read, version: EngineVersion) -> frozenset[str]:
    if read.metric is not names.CACHE_CONFIG:
        return read.labels
    of_pool = dict(POOL_LABELS)
    if not version.at_least(_POOL_TOKENS_SINCE):
        del of_pool[Signal.POOL_TOKENS]
    return read.labels | frozenset(of_pool.values())
