"""Memory of the host: what ranks share, what the pod asks for, what its limit leaves for the weights."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.audit.rule import Group, Hit, Severity, rule
from plimsoll.core.quantity import quantity
from plimsoll.core.workloads.server import Server, memory_of
from plimsoll.core.workloads.tree import entries, part, text

_LEAST_SHM_BYTES: Final = 1 << 30


@rule(
    "no-shared-memory",
    Group.LOAD,
    Severity.WARNING,
    title="No /dev/shm with tensor parallelism",
    why="Ranks exchange data through /dev/shm, of which a container has 64 MiB: NCCL ends the start, or a long prompt "
    'ends the engine, with "No space left on device".',
    fix="An emptyDir with medium: Memory (2 GiB for each GPU) mounted at /dev/shm, counted in the memory limit.",
)
def no_shared_memory(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """More than one rank in 64 MiB."""
    ranks = server.arguments.count("tensor_parallel_size") * server.arguments.count("pipeline_parallel_size")
    if ranks <= 1 or server.on_cpu or server.candidate.scope == "operator" or not server.candidate.given:
        return
    if server.pod.get("hostIPC") is True or "/dev/shm" in server.mounts or _charted_shm(server):  # noqa: S108
        return
    yield Hit(
        f"no /dev/shm with TP>1 ({ranks} ranks): they share the 64 MiB that a container has by default",
        server.candidate.path,
    )


@rule(
    "small-shared-memory",
    Group.LOAD,
    Severity.NOTE,
    title="Very little shared memory",
    why="NCCL and the queues between vLLM's processes live in /dev/shm; images of multimodal requests pass through it.",
    fix="sizeLimit of 2Gi for each GPU, counted in the memory limit.",
)
def small_shared_memory(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A size limit below what ranks and images need."""
    limit = text(part(server.mounts.get("/dev/shm", {}), "emptyDir"), "sizeLimit")  # noqa: S108
    size = _bytes(limit)
    if size is not None and size < _LEAST_SHM_BYTES:
        yield Hit(f"shared memory of {limit} only", server.pod_field("volumes"))


def _charted_shm(server: Server) -> bool:
    """Charts may mount it themselves: only values that list the mounts say that it is not there."""
    if server.candidate.scope != "values":
        return False
    mounts = {text(each, "mountPath") for each in entries(server.container, "volumeMounts")}
    return "volumeMounts" not in server.container or "/dev/shm" in mounts  # noqa: S108


@rule(
    "no-memory-request",
    Group.LOAD,
    Severity.WARNING,
    title="No memory request or limit",
    why="Without a request the scheduler puts the pod on a node whose memory others use: weights are loaded through "
    "the "
    "page cache, and such pods are the first to be evicted.",
    fix="resources.requests.memory of the weights of one GPU plus 8 GiB, as plimsoll plan prints it.",
)
def no_memory_request(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """First to be evicted."""
    said = any(memory_of(server, which) for which in ("requests", "limits"))
    if server.whole_pod and not server.is_job and not said:
        yield Hit("no memory request or limit: the pod is the first to be evicted", server.field("resources"))


@rule(
    "memory-limit-below-weights",
    Group.START,
    Severity.WARNING,
    title="Memory limit below the weights",
    why="Weights are read through the pod's page cache and staging buffers. A limit below their size makes loading "
    "slow at "
    "best; where the loader keeps a copy, the container is killed (OOMKilled).",
    fix="A memory limit of the weights plus 8 GiB.",
)
def memory_limit_below_weights(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The limit is smaller than what is loaded."""
    limit, weights = _bytes(memory_of(server, "limits")), evidence.weight_bytes
    if limit is not None and weights is not None and limit < weights:
        yield Hit(
            f"memory limit {memory_of(server, 'limits')} below weight size (~{weights / (1 << 30):.0f} GiB)",
            server.field("resources"),
        )


def _bytes(written: str | None) -> Decimal | None:
    found = quantity(written) if written else None
    return found if found is not None and found >= 0 else None
