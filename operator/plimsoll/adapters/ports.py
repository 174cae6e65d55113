"""What the loop needs of the outside, in its own words. The adapters behind are the only ones that know a library."""

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from plimsoll.core.election import Term
from plimsoll.core.sampling import Answer, Fault

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """One resource type the operator reads or writes."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` that a manifest of this kind carries."""
        return f"{self.group}/{self.version}" if self.group else self.version


SERVICES = Kind("plimsoll.dev", "v1alpha1", "vllmservices", "VLLMService")
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment")
REVISIONS = Kind("apps", "v1", "controllerrevisions", "ControllerRevision")
NETWORK_SERVICES = Kind("", "v1", "services", "Service")
DISRUPTION_BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
JOBS = Kind("batch", "v1", "jobs", "Job")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap")
VOLUME_CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PODS = Kind("", "v1", "pods", "Pod")
NODES = Kind("", "v1", "nodes", "Node")
EVENTS = Kind("", "v1", "events", "Event")
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease")
AUTOSCALERS = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
LEADER_WORKER_SETS = Kind("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
POD_MONITORS = Kind("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor")
INFERENCE_POOLS = Kind("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool")

CHILDREN = (REVISIONS, NETWORK_SERVICES, DISRUPTION_BUDGETS, DEPLOYMENTS, JOBS)
OPTIONAL = (LEADER_WORKER_SETS, POD_MONITORS, INFERENCE_POOLS)
"""Children of kinds that a cluster may have or not, now or later: ``control/optional.py`` knows which."""


class ClusterError(Exception):
    """The API server refused or could not be reached. ``retry_after_seconds`` is its own wish, if it had one."""

    def __init__(self, message: str, *, status: int = 0, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class NotFoundError(ClusterError):
    """404: the object, or its kind, does not exist."""


class ConflictError(ClusterError):
    """409: somebody else owns a field, or the object changed meanwhile."""


class ForbiddenError(ClusterError):
    """401 or 403: the operator may not do this."""


class InvalidError(ClusterError):
    """400 or 422: the API server will never accept this as it is."""


class UnreachableError(ClusterError):
    """No answer, 429 or 5xx: later may be better."""


class GoneError(ClusterError):
    """410: the version to watch from is too old; list again."""


@dataclass(frozen=True)
class Change:
    """One watch event: the object as it is now, or as it was when it was deleted."""

    deleted: bool
    object: Object


class Cluster(Protocol):
    """The Kubernetes API: plain dicts in and out. Every call may raise ClusterError."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """One object; NotFoundError when there is none."""

    def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = ""
    ) -> AsyncIterator[Object]:
        """All objects of a kind, page by page; ``fields`` is a field selector."""

    async def version(self, kind: Kind, namespace: str | None = None) -> str:
        """A version to watch from: what a listing made after this call shows is at least as new."""

    def watch(self, kind: Kind, namespace: str | None, selector: str, since: str) -> AsyncIterator[Change]:
        """Changes after a listing's version, until the server ends the stream; GoneError when it is too old."""

    async def apply(
        self, kind: Kind, manifest: Object, manager: str, *, subresource: str = "", force: bool = True
    ) -> Object:
        """Server-side apply; the object as the API server then holds it."""

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str, *, version: str = "") -> None:
        """Delete this very object (by uid), at this version if one is given; gone already is fine."""

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """Create an object that nobody updates afterwards (an Event)."""

    async def log(
        self, namespace: str, pod: str, container: str, *, previous: bool, tail_lines: int, limit_bytes: int
    ) -> str:
        """The end of a container's log; ``previous``: of its run before this one."""

    async def served(self, kind: Kind) -> bool:
        """Whether the API server serves this kind now."""

    async def schema(self, kind: Kind) -> Object | None:
        """The OpenAPI schema under which this kind is served; None when none is published (yet)."""

    async def which_served(self, kinds: Collection[Kind]) -> frozenset[Kind]:
        """Those of the kinds that the API server serves now; one request for all where the server can."""


class MetricsSource(Protocol):
    """Prometheus, or what answers like it."""

    async def query(self, promql: str) -> Answer | Fault:
        """What an instant query finds now, or why there is no answer; never raises, and takes a bounded time."""


class LeaseStore(Protocol):
    """The one Lease that says which operator leads. Both calls may raise ClusterError."""

    async def read(self) -> tuple[Term | None, str]:
        """What the Lease says and its version; no Term when it does not exist."""

    async def write(self, term: Term, version: str) -> None:
        """Create it (no version) or replace just that version; ConflictError when somebody was faster."""


class Clock(Protocol):
    """Time as the loop sees it."""

    def now(self) -> str:
        """The wall clock, RFC 3339 in UTC, whole seconds: for people and for conditions."""

    def wall_seconds(self) -> float:
        """Seconds since 1970, by the wall clock: to compare with times that objects carry."""

    def stamp(self) -> str:
        """The same as ``now`` with microseconds, as Leases carry it."""

    def monotonic(self) -> float:
        """Seconds that never jump: for durations and deadlines."""
