"""How pods end and are replaced, and who writes the number of replicas."""

import re
from collections.abc import Iterator
from typing import Final

from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.audit.rule import Group, Hit, Severity, rule
from plimsoll.core.workloads.server import DEFAULT_GRACE_SECONDS, Server, claim_names
from plimsoll.core.workloads.stack import stack_models
from plimsoll.core.workloads.tree import Tree, as_list, at, entries, part, text, whole
from plimsoll.core.workloads.values import charted_autoscaling

_DEFAULT_DEADLINE_SECONDS: Final = 600
_SINGLE_NODE_MODES: Final = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})


@rule(
    "grace-too-short",
    Group.LOAD,
    Severity.WARNING,
    title="Grace of 30 s or less",
    why="Generations run for minutes. What is not finished when the grace ends is killed: with the default of 30 s "
    "every "
    "rollout, scale-down and node drain loses requests.",
    fix="terminationGracePeriodSeconds longer than preStop and the longest generation together, 180 or more.",
)
def grace_too_short(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Requests in flight are cut off."""
    if not server.whole_pod or server.is_job:
        return
    grace = server.grace_seconds
    if grace is None:
        yield Hit(
            f"grace {DEFAULT_GRACE_SECONDS} s (default, not set): requests that take longer are lost when a pod ends",
            server.candidate.pod_path,
        )
    elif grace <= DEFAULT_GRACE_SECONDS:
        path = server.pod_field("terminationGracePeriodSeconds")
        yield Hit(f"grace {grace} s: requests that take longer are lost when a pod ends", path)


@rule(
    "no-pre-stop",
    Group.LOAD,
    Severity.WARNING,
    title="No preStop",
    why="Endpoints and routers learn seconds later than the engine that a pod ends. A draining vLLM answers new "
    "requests "
    "with 500, so it must go on serving until nobody sends any.",
    fix="lifecycle.preStop: {exec: {command: [sleep, '15']}}, and --shutdown-timeout where the release has it (0.19).",
)
def no_pre_stop(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """New requests reach an engine that ends."""
    if server.whole_pod and not server.is_job and not part(server.container, "lifecycle", "preStop"):
        yield Hit("no preStop: requests that arrive while a pod ends fail", server.candidate.path)


@rule(
    "pre-stop-fills-grace",
    Group.LOAD,
    Severity.WARNING,
    title="preStop leaves no time to drain",
    why="The grace period counts from the beginning of preStop: what is left after it is all that requests have.",
    fix="Make terminationGracePeriodSeconds longer than preStop plus the longest generation.",
)
def pre_stop_fills_grace(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Killed during preStop, or right after."""
    slept = _sleep_seconds(server)
    grace = server.grace_seconds if server.grace_seconds is not None else DEFAULT_GRACE_SECONDS
    if slept is not None and slept >= grace:
        yield Hit(
            f"preStop {slept} s inside a {grace} s grace: the container is killed before it drains",
            server.field("lifecycle"),
        )
    elif slept is not None and grace <= DEFAULT_GRACE_SECONDS:
        yield Hit(
            f"preStop {slept} s inside a {grace} s grace leaves {grace - slept} s to finish requests",
            server.field("lifecycle"),
            Severity.NOTE,
        )


def _sleep_seconds(server: Server) -> int | None:
    own = whole(at(server.container, "lifecycle", "preStop", "sleep", "seconds"))
    words = at(server.container, "lifecycle", "preStop", "exec", "command")
    match = re.search(r"\bsleep\s+(\d{1,9})", " ".join(map(str, words))) if isinstance(words, list) else None
    return own if own is not None else int(match[1]) if match else None


@rule(
    "surge-needs-spare-gpu",
    Group.LOAD,
    Severity.WARNING,
    title="RollingUpdate needs a spare GPU",
    why="A Deployment's default (RollingUpdate with surge 25 %) starts the new pod before it ends an old one. "
    "Without a "
    "free GPU the new pod stays Pending and the rollout never ends.",
    fix="maxSurge: 0 and maxUnavailable: 1 with several replicas; type: Recreate with one, where no GPU is spare.",
)
def surge_needs_spare_gpu(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The new pod waits for the GPU that the old one holds."""
    strategy = part(server.manifest, "spec", "strategy") if server.is_deployment else part(server.pod, "strategy")
    if not _holds_gpus(server) or not (server.is_deployment or strategy):
        return
    kind = text(strategy, "type")
    if kind == "Recreate" or (kind is None and strategy and "rollingUpdate" not in strategy):
        return
    if not _surges(strategy):
        return
    unset = kind is None and at(strategy, "rollingUpdate", "maxSurge") is None
    how = "default RollingUpdate" if unset else "RollingUpdate with surge"
    gpus = f"{server.gpus} GPUs" if server.gpus and server.gpus > 1 else "a GPU"
    yield Hit(
        f"{how} needs a spare GPU for the surge pod: without {gpus} free the rollout waits for ever", "spec.strategy"
    )


def _surges(strategy: Tree) -> bool:
    return text(strategy, "rollingUpdate", "maxSurge") not in {"0", "0%"}


def _modes(written: object) -> set[str]:
    return set(map(str, as_list(written)))


def _holds_gpus(server: Server) -> bool:
    if server.gpus == 0 or server.on_cpu:
        return False
    charted = server.candidate.scope == "values" and server.other_device is None
    return server.asks_for_devices or charted


@rule(
    "rwo-volume-rolling-update",
    Group.LOAD,
    Severity.WARNING,
    title="ReadWriteOnce volume with RollingUpdate",
    why="A ReadWriteOnce volume is attached to one node. A surge pod that lands on another node waits for ever "
    "(Multi-Attach error) while the old pod waits for it; a second replica never starts there.",
    fix="A ReadWriteMany or ReadOnlyMany claim, type: Recreate, or maxSurge: 0.",
)
def rwo_volume_rolling_update(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The new pod cannot mount the volume."""
    if server.candidate.scope == "values":
        yield from _charted_claim(server)
    if not server.is_deployment:
        return
    strategy = part(server.manifest, "spec", "strategy")
    if text(strategy, "type") == "Recreate" or not _surges(strategy):
        return
    for name in claim_names(server):
        modes = _modes(at(server.around.claim(server.namespace, name), "accessModes"))
        if modes and modes <= _SINGLE_NODE_MODES:
            yield Hit(
                f"RWO volume with RollingUpdate: claim {name} is on one node, a new pod can wait for ever on another",
                server.pod_field("volumes"),
            )


def _charted_claim(server: Server) -> Iterator[Hit]:
    """The production stack's chart makes one claim a model, ReadWriteOnce unless told otherwise."""
    for path, model, engine in stack_models(server.manifest):
        modes = _modes(model.get("pvcAccessMode") or ["ReadWriteOnce"]) if model.get("pvcStorage") else set()
        rolls = text(engine, "strategy", "type") in {None, "RollingUpdate"}
        if path == server.candidate.path and modes and modes <= _SINGLE_NODE_MODES and rolls:
            yield Hit(
                "RWO volume with the chart default RollingUpdate: a new pod can wait for ever on another node", path
            )


@rule(
    "progress-deadline-too-short",
    Group.LOAD,
    Severity.WARNING,
    title="progressDeadlineSeconds shorter than the load",
    why="After 600 s (the default) without a new ready pod a Deployment counts as failed: Argo CD, Flux and helm "
    "--wait "
    "give up and may roll back while a large model still loads.",
    fix="progressDeadlineSeconds: at least the startup budget plus pulling the image.",
)
def progress_deadline_too_short(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The rollout is called failed while it loads."""
    if not server.is_deployment:
        return
    written = whole(at(server.manifest, "spec", "progressDeadlineSeconds"))
    deadline = _DEFAULT_DEADLINE_SECONDS if written is None else written
    needed = evidence.class_seconds if evidence.large else 0
    if deadline <= needed and deadline < max(needed, 1):
        size = f"{evidence.billions:.0f}B" if evidence.billions else "large"
        how = "" if written is not None else " (default)"
        yield Hit(
            f"progressDeadlineSeconds {deadline} s{how} for a large model ({size}): loading may take {needed} s",
            "spec.progressDeadlineSeconds" if written is not None else "spec",
        )


@rule(
    "two-writers-of-replicas",
    Group.LOAD,
    Severity.WARNING,
    title="Two writers of replicas",
    why="Every apply sets the count that the manifest fixes, the autoscaler sets its own again: pods that took minutes "
    "to load are ended and started over.",
    fix="Leave spec.replicas out of the manifest that the autoscaler scales.",
)
def two_writers_of_replicas(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """An autoscaler and a fixed number."""
    for scaler in server.scalers:
        if server.replicas is not None and _somebody_fixes_replicas(server):
            yield Hit(
                f"two writers of replicas: {scaler} and a fixed replicas field ({server.replicas})",
                server.candidate.replicas_path,
            )


def _somebody_fixes_replicas(server: Server) -> bool:
    """In a file the number stands there; in a cluster it always does: then who wrote it decides."""
    metadata = part(server.manifest, "metadata")
    if "uid" not in metadata:
        return server.candidate.replicas_path == "spec.replicas"
    applied = text(part(metadata, "annotations"), "kubectl.kubernetes.io/last-applied-configuration")
    if applied is not None:
        return re.search(r'"replicas":\s*\d', applied) is not None
    managers = entries(metadata, "managedFields")
    appliers = [each for each in managers if each.get("operation") == "Apply" and each.get("subresource") != "scale"]
    return any("f:replicas" in part(each, "fieldsV1", "f:spec") for each in appliers)


@rule(
    "scales-on-cpu",
    Group.LOAD,
    Severity.WARNING,
    title="Autoscaling on CPU or GPU utilisation",
    why="A vLLM server keeps its cores and its GPU busy as soon as one request runs, and a queue of a hundred looks "
    "the "
    "same: such an autoscaler grows too early and never where it should.",
    fix="Scale on vllm:num_requests_waiting and KV-cache use, or let Plimsoll do it.",
)
def scales_on_cpu(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The metric does not follow the demand."""
    if server.candidate.scope == "values" and (path := charted_autoscaling(server.manifest)):
        yield Hit("the chart scales on CPU utilisation, which does not follow demand", path)
    for scaler in server.scalers:
        metrics = [
            text(m, "resource", "name") or text(m, "containerResource", "name")
            for m in entries(scaler.body, "spec", "metrics")
        ]
        triggers = [text(t, "type") for t in entries(scaler.body, "spec", "triggers")]
        old = ["cpu"] if at(scaler.body, "spec", "targetCPUUtilizationPercentage") else []
        found = [each for each in (*metrics, *triggers, *old) if each in {"cpu", "memory"}]
        gpu = re.search(r"DCGM_FI_DEV_GPU_UTIL|gpu_util|duty_cycle", str(scaler.body), re.IGNORECASE)
        if found or gpu:
            yield Hit(
                f"{scaler} scales on {found[0] if found else 'GPU'} utilisation, which does not follow demand",
                server.candidate.path,
            )


@rule(
    "signals-do-not-reach-engine",
    Group.LOAD,
    Severity.WARNING,
    title="The engine does not get SIGTERM",
    why="A shell between Kubernetes and the engine keeps SIGTERM for itself: the engine is killed at the end of the "
    "grace "
    "without finishing a request. Behind a pipe the exit code is that of the last command, so a crash looks like "
    "success.",
    fix="exec before the server's command, and no pipe: Kubernetes keeps the log.",
)
def signals_do_not_reach_engine(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Started by a shell that stays."""
    if server.launch.piped:
        yield Hit("vLLM behind a shell pipe: exit code and SIGTERM lost", server.candidate.path)
    elif server.launch.in_shell and not server.launch.replaces_shell and server.candidate.scope == "pod":
        yield Hit(
            "the shell that starts vLLM keeps SIGTERM for itself: write exec before it",
            server.candidate.path,
            Severity.NOTE,
        )
