"""Image, weights and the objects around: what is fetched again and again, moves by itself, or is silently lost."""

import re
from collections.abc import Iterator
from typing import Final

from plimsoll.core.audit.evidence import Evidence, shown_gib
from plimsoll.core.audit.rule import Group, Hit, Severity, rule
from plimsoll.core.workloads.launch import is_unresolved
from plimsoll.core.workloads.server import Server, lies_in
from plimsoll.core.workloads.stack import ignored_keys
from plimsoll.core.workloads.tree import at, part

_LINKED: Final = re.compile(r"tcp://")
_OF_POD: Final = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "volumes",
    "terminationGracePeriodSeconds",
    "runtimeClassName",
    "serviceAccountName",
    "hostNetwork",
    "imagePullSecrets",
)
_OF_CONTAINER: Final = (
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "args",
    "command",
    "env",
    "envFrom",
    "ports",
    "volumeMounts",
    "lifecycle",
    "image",
)
_OF_WORKLOAD: Final = ("strategy", "progressDeadlineSeconds", "replicas")


@rule(
    "floating-image-tag",
    Group.UPGRADE,
    Severity.WARNING,
    title="Floating image tag",
    why="The same tag is another image at the next pull: a node that has no copy runs another vLLM than its "
    "neighbours, "
    "with other flags, defaults and memory, and a rollback brings back the same.",
    fix="A release tag such as v0.32.0, or a digest.",
)
def floating_image_tag(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Another engine after any restart."""
    moves = server.image.moves if server.image and server.candidate.given else None
    if moves is not None:
        yield Hit(f"floating image tag ({moves})", server.field("image"))


@rule(
    "downloads-at-each-start",
    Group.WASTE,
    Severity.WARNING,
    title="Weights downloaded again at each start",
    why="Without a volume at the hub's cache every start fetches all weights: minutes in which GPUs are paid for and "
    "idle, "
    "a rollout that depends on the hub, and a node whose disk fills with copies.",
    fix="A PersistentVolumeClaim at HF_HOME (a ReadWriteMany one for several replicas), or weights in an image volume.",
)
def downloads_at_each_start(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Nothing keeps what was fetched."""
    if not server.whole_pod or server.is_job or server.is_runtime or evidence.keeps_weights:
        return
    size = f" (~{shown_gib(evidence.weight_bytes)})" if evidence.weight_bytes else ""
    if server.fetches and server.argv_known and not _offline(server) and not _loads_otherwise(server):
        inside = "emptyDir" in (evidence.cache_volume or {})
        what = "model kept in an emptyDir" if inside else "no persistent model cache"
        yield Hit(f"{what}: downloads again at each start{size}", server.candidate.path)
    elif (folder := _filled_emptily(server)) is not None:
        yield Hit(f"model kept in an emptyDir ({folder}): downloads again at each start{size}", server.candidate.path)


def _loads_otherwise(server: Server) -> bool:
    """Whether a loader of another kind brings the weights: a stream, a peer, an object store."""
    return server.arguments.text("load_format") not in {None, "auto", "safetensors", "pt", "npcache", "bitsandbytes"}


def _offline(server: Server) -> bool:
    return server.environment.get("HF_HUB_OFFLINE") == "1"


def _filled_emptily(server: Server) -> str | None:
    """The emptyDir that the model's folder is in: somebody fills it at each start."""
    model = (server.model or "").rstrip("/")
    for path, volume in server.mounts.items():
        if model.startswith("/") and "emptyDir" in volume and lies_in(model, path):
            return path
    return None


@rule(
    "service-named-vllm",
    Group.START,
    Severity.ERROR,
    title="A Service named vllm sets VLLM_PORT",
    why="Kubernetes gives every pod variables for each Service of its namespace. A Service named vllm makes "
    "VLLM_PORT=tcp://10.…: vLLM reads it as a number and fails at the next start of a pod, though the first one, "
    "older than "
    "the Service, ran.",
    fix="enableServiceLinks: false in the pod, or another name for the Service.",
)
def service_named_vllm(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """VLLM_PORT=tcp://…"""
    named = server.around.services_named(server.namespace, "vllm")
    links = server.pod.get("enableServiceLinks")
    if named and links is not False and "VLLM_PORT" not in server.variables and server.candidate.scope == "pod":
        yield Hit("Service named vllm: injected VLLM_PORT=tcp://… breaks vLLM", server.pod_field("enableServiceLinks"))


@rule(
    "own-vllm-port",
    Group.START,
    Severity.WARNING,
    title="VLLM_PORT is not the API's port",
    why="vLLM reads VLLM_PORT as the first port for its own processes to talk through. Equal to --port, or filled "
    "with a "
    "URL, the engine fails to bind or to parse it.",
    fix="Name the variable differently; the API's port is --port.",
)
def own_vllm_port(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """An internal setting under a misleading name."""
    used = next((word for word in server.launch.argv or () if re.search(r"\$\(?\{?VLLM_PORT", word)), None)
    variable = server.variables.get("VLLM_PORT")
    if variable is None and used is None:
        return
    value = variable.value if variable else None
    path = server.field(variable.place) if variable else server.candidate.path
    if value is not None and (value == str(server.port) or _LINKED.match(value)):
        yield Hit(f"VLLM_PORT={value} equals the API port: internal port base collides", path)
    elif used is not None:
        yield Hit("own variable called VLLM_PORT: vLLM reads it as its internal port base", path)


@rule(
    "field-at-wrong-level",
    Group.LOAD,
    Severity.WARNING,
    title="A field at the wrong level",
    why="A field that the API does not know at its place is dropped (with a warning at best): the manifest says what "
    "the "
    "cluster never does.",
    fix="Move it; kubectl apply --dry-run=server --validate=strict shows all of them.",
)
def field_at_wrong_level(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Silently lost."""
    if server.whole_pod:
        own = set(server.container)
        for key in _OF_POD:
            if key in own:
                yield Hit(f"{key} in the container: it belongs to the pod and is silently lost", server.field(key))
        for key in _OF_CONTAINER:
            if key in server.pod:
                yield Hit(f"{key} in the pod: it belongs to the container and is silently lost", server.pod_field(key))
        for key in _OF_WORKLOAD if server.is_deployment else ():
            if key in server.pod:
                yield Hit(f"{key} in the pod: it belongs to the Deployment and is silently lost", server.pod_field(key))
        spec = part(server.manifest, "spec")
        for key in ("containers", "volumes", "nodeSelector", "tolerations") if server.is_deployment else ():
            if key in spec:
                yield Hit(
                    f"{key} in the Deployment's spec: it belongs to spec.template.spec and is silently lost",
                    f"spec.{key}",
                )


@rule(
    "values-ignored",
    Group.LOAD,
    Severity.WARNING,
    title="Values that the chart does not read",
    why="Helm takes any value; one that no template reads changes nothing. An engine then runs without the limit "
    "that the "
    "file shows.",
    fix="Move it to where the chart reads it; helm template shows what comes out.",
)
def values_ignored(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Keys of the production stack at the wrong level."""
    if server.candidate.scope != "values" or "modelSpec[" not in server.candidate.path:
        return
    own = server.candidate.path.rpartition(".")[2]
    for path, why in ignored_keys(server.manifest):
        if "modelSpec[" not in path and own == "modelSpec[0]":
            yield Hit(f"{why}: silently ignored", path, Severity.NOTE)
        elif own in path:
            yield Hit(f"{path.rpartition('.')[2]} at the wrong level ({why}): the chart drops it silently", path)


@rule(
    "placeholder-model",
    Group.START,
    Severity.WARNING,
    title="A placeholder in place of a model",
    why="Somebody has to fill it in before anything starts.",
    fix="Write the model's name or folder.",
)
def placeholder_model(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """YOUR-MODEL-PATH."""
    model = server.model or ""
    if re.search(r"your[-_ ]|<.+>|replace|path[-_]to|example[-_]model", model, re.IGNORECASE) and not is_unresolved(
        model
    ):
        yield Hit(f"{model}: a placeholder, not a model", server.flag_field("model"))


@rule(
    "relative-path",
    Group.LOAD,
    Severity.NOTE,
    title="A path that depends on the working directory",
    why="A relative path is looked up in the image's working directory, which another image or release may change.",
    fix="Write an absolute path, or mount the file from a ConfigMap.",
)
def relative_path(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A chat template beside nobody knows what."""
    template = server.arguments.text("chat_template") or ""
    if template.endswith((".jinja", ".jinja2")) and not template.startswith("/") and not is_unresolved(template):
        yield Hit(f"relative chat-template path ({template})", server.flag_field("chat_template"))


@rule(
    "forced-gpu-target",
    Group.UPGRADE,
    Severity.NOTE,
    title="Another GPU target is forced",
    why="HSA_OVERRIDE_GFX_VERSION makes ROCm take the card for another one: kernels may fail or compute wrongly.",
    fix="An image built for the card's own target.",
)
def forced_gpu_target(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Kernels of another card."""
    if "HSA_OVERRIDE_GFX_VERSION" in server.variables:
        yield Hit(
            "HSA_OVERRIDE_GFX_VERSION forces another GPU target",
            server.field(server.variables["HSA_OVERRIDE_GFX_VERSION"].place),
        )


@rule(
    "warm-up-skipped",
    Group.LOAD,
    Severity.NOTE,
    title="Warm-up skipped",
    why="The first request of each shape then compiles its graph: seconds to minutes of latency after every start.",
    fix="Remove VLLM_SKIP_WARMUP.",
)
def warm_up_skipped(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Paid by the first requests."""
    variable = server.variables.get("VLLM_SKIP_WARMUP")
    if variable is not None and (variable.value or "").lower() in {"true", "1"}:
        yield Hit("warm-up skipped: first requests pay for graph compilation", server.field(variable.place))


@rule(
    "spot-without-drain",
    Group.LOAD,
    Severity.NOTE,
    title="Spot nodes and no time to drain",
    why="A spot node is taken back with a notice of 30 to 120 s: with a grace of 30 s or less, and no second "
    "replica, every "
    "interruption loses all requests and takes the service away for a whole load.",
    fix="A grace that fills the notice, a preStop, two replicas over different nodes.",
)
def spot_without_drain(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Interrupted at any time."""
    wanted = f"{part(server.pod, 'nodeSelector')} {at(server.pod, 'affinity') or ''}".lower()
    if ("spot" in wanted or "preemptible" in wanted) and (server.grace_seconds or 0) <= 30:  # noqa: PLR2004
        yield Hit("spot node and no grace for drain", server.pod_field("nodeSelector"))
