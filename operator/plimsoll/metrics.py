"""The operator's own metrics. Names start with ``plimsoll_``; the list is part of the contract."""

import contextlib
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

RECONCILES = Counter("plimsoll_reconciles_total", "Reconciles finished, by result", ["result"], registry=REGISTRY)
RECONCILE_SECONDS = Histogram(
    "plimsoll_reconcile_seconds",
    "Duration of one reconcile",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15),
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge("plimsoll_queue_depth", "Services in line for a reconcile", registry=REGISTRY)
QUEUE_AGE_SECONDS = Gauge("plimsoll_queue_age_seconds", "Wait of the first in line", registry=REGISTRY)
API_WRITES = Counter(
    "plimsoll_api_writes_total",
    "Writes sent to the Kubernetes API, renewals of the Lease not counted",
    ["resource"],
    registry=REGISTRY,
)
API_ERRORS = Counter("plimsoll_api_errors_total", "Kubernetes API calls that failed", ["status"], registry=REGISTRY)
SWEEPS = Counter("plimsoll_sweeps_total", "Full listings, by result", ["result"], registry=REGISTRY)
WATCH_RESTARTS = Counter(
    "plimsoll_watch_restarts_total", "Times the watching part ended and was restarted", registry=REGISTRY
)
TASKS = Gauge("plimsoll_tasks", "Tasks of the event loop; flat, whatever happens", registry=REGISTRY)
SERVICES = Gauge("plimsoll_services", "VLLMServices known", registry=REGISTRY)
LEADER = Gauge("plimsoll_leader", "1 while this process holds the Lease and acts, else 0", registry=REGISTRY)
OPTIONAL_KINDS = Gauge(
    "plimsoll_optional_kind_usable", "1 when an optional kind is served and may be used", ["kind"], registry=REGISTRY
)
YIELDED = Gauge("plimsoll_yielded_services", "VLLMServices left to another install that serves them", registry=REGISTRY)
PROMETHEUS_QUERIES = Counter("plimsoll_prometheus_queries_total", "Queries sent to Prometheus", registry=REGISTRY)
PROMETHEUS_FAULTS = Counter(
    "plimsoll_prometheus_query_failures_total", "Queries without a usable answer, by kind", ["kind"], registry=REGISTRY
)
SAMPLE_SECONDS = Histogram(
    "plimsoll_sample_seconds",
    "Duration of one tick: all queries for all services",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    registry=REGISTRY,
)

_SERVICE = ["namespace", "service"]
REPLICAS_WANTED = Gauge(
    "plimsoll_service_replicas_wanted", "Replicas a service is to have", _SERVICE, registry=REGISTRY
)
REPLICAS_RECOMMENDED = Gauge(
    "plimsoll_service_replicas_recommended",
    "Replicas that Plimsoll would set now, whoever sets them; while demand is not known, those that are wanted",
    _SERVICE,
    registry=REGISTRY,
)
REPLICAS_READY = Gauge("plimsoll_service_replicas_ready", "Replicas that are ready", _SERVICE, registry=REGISTRY)
DEMAND_BLOCKS = Gauge(
    "plimsoll_service_demand_blocks", "KV blocks in use and waited for, over the service", _SERVICE, registry=REGISTRY
)
DEMAND_REPLICAS = Gauge(
    "plimsoll_service_demand_replicas", "Replicas' worth of demand, without head-room", _SERVICE, registry=REGISTRY
)
_OF_DEMAND = (DEMAND_BLOCKS, DEMAND_REPLICAS)
FINDING = Gauge(
    "plimsoll_service_finding",
    "1 for what limits a service now; docs/reference.md lists the findings",
    [*_SERVICE, "finding"],
    registry=REGISTRY,
)
METRICS_COMPLETE = Gauge(
    "plimsoll_service_metrics_complete",
    "1 while every replica that serves reports all that decisions need, else 0",
    _SERVICE,
    registry=REGISTRY,
)
KV_USE = Gauge(
    "plimsoll_service_kv_use_ratio",
    "Share of the KV cache in use, mean of the engines that say",
    _SERVICE,
    registry=REGISTRY,
)
KV_TOKENS_PLANNED = Gauge(
    "plimsoll_service_kv_tokens_planned",
    "Tokens that an engine's KV cache was planned to hold",
    _SERVICE,
    registry=REGISTRY,
)
KV_TOKENS_OBSERVED = Gauge(
    "plimsoll_service_kv_tokens_observed",
    "Tokens that an engine's KV cache holds, by its own word",
    _SERVICE,
    registry=REGISTRY,
)
STEP_TIME_RATIO = Gauge(
    "plimsoll_service_step_time_ratio",
    "Decode steps over those that were predicted, where they could be measured",
    _SERVICE,
    registry=REGISTRY,
)
LATENCY_RATIO = Gauge(
    "plimsoll_service_latency_ratio",
    "A latency of spec.slo over its target: above 1 it is missed",
    [*_SERVICE, "latency"],
    registry=REGISTRY,
)
LATENCIES = ("ttft", "itl")
LOAD_OBSERVED = Gauge(
    "plimsoll_service_load_observed",
    "A figure of the load as the last days have shown it: the most of it, of prefix hits the fewest",
    [*_SERVICE, "figure"],
    registry=REGISTRY,
)
LOAD_COUNTED = Gauge(
    "plimsoll_service_load_counted",
    "A figure of the load as the next plan and the autoscaler count with it, declared or observed",
    [*_SERVICE, "figure"],
    registry=REGISTRY,
)
_OBSERVED = (METRICS_COMPLETE, KV_USE, KV_TOKENS_PLANNED, KV_TOKENS_OBSERVED, STEP_TIME_RATIO)


def show(gauge: Gauge, namespace: str, service: str, value: float | None, *more: str) -> None:
    """A figure of a service; no series when it is not known."""
    if value is None:
        _forget([gauge], namespace, service, *more)
    else:
        gauge.labels(namespace, service, *more).set(value)


def forget_demand(namespace: str, service: str) -> None:
    """The demand of a service is not known now."""
    _forget(_OF_DEMAND, namespace, service)


def forget_service(namespace: str, service: str) -> None:
    """A service is gone: its series would say what is not so any more."""
    _forget((REPLICAS_WANTED, REPLICAS_RECOMMENDED, REPLICAS_READY, *_OF_DEMAND, *_OBSERVED), namespace, service)
    for latency in LATENCIES:
        _forget([LATENCY_RATIO], namespace, service, latency)


def forget_services() -> None:
    """Another operator leads: what was known of services here is not so any more."""
    for gauge in (REPLICAS_WANTED, REPLICAS_RECOMMENDED, REPLICAS_READY, *_OF_DEMAND, *_OBSERVED):
        gauge.clear()
    for gauge in (FINDING, LATENCY_RATIO, LOAD_OBSERVED, LOAD_COUNTED):
        gauge.clear()


def _forget(gauges: Iterable[Gauge], *labels: str) -> None:
    for gauge in gauges:
        with contextlib.suppress(KeyError):
            gauge.remove(*labels)
