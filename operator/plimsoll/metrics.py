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
_OF_SCALING = (REPLICAS_WANTED, REPLICAS_RECOMMENDED, REPLICAS_READY, *_OF_DEMAND)


def forget_demand(namespace: str, service: str) -> None:
    """The demand of a service is not known now."""
    _forget(_OF_DEMAND, namespace, service)


def forget_service(namespace: str, service: str) -> None:
    """A service is gone: its series would say what is not so any more."""
    _forget(_OF_SCALING, namespace, service)


def forget_services() -> None:
    """Another operator leads: who follows a recommendation must find one."""
    for gauge in _OF_SCALING:
        gauge.clear()


def _forget(gauges: Iterable[Gauge], *labels: str) -> None:
    for gauge in gauges:
        with contextlib.suppress(KeyError):
            gauge.remove(*labels)
