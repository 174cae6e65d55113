"""Who can reach the engine, what it may do on its node, and secrets in plain sight."""

import re
from collections.abc import Iterator
from typing import Final

from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.audit.rule import Group, Hit, Severity, rule
from plimsoll.core.workloads.launch import is_unresolved
from plimsoll.core.workloads.server import Server
from plimsoll.core.workloads.tree import at, text
from plimsoll.core.workloads.values import charted_exposure
from plimsoll.core.workloads.variables import LITERAL

_COMMIT: Final = re.compile(r"[0-9a-f]{7,40}")
_TOKENS: Final = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HUGGINGFACE_TOKEN",
    "HUGGINGFACEHUB_API_TOKEN",
    "MODELSCOPE_API_TOKEN",
)
_PLACEHOLDER: Final = re.compile(r"^\s*$|^<.*>$|your|xxx|replace|change|placeholder|\*\*\*", re.IGNORECASE)


@rule(
    "exposed-without-api-key",
    Group.INSECURE,
    Severity.WARNING,
    title="Exposed without an API key",
    why="Whoever reaches the address may use the GPUs, read the model's name and fill the queue; vLLM asks for "
    "nothing by "
    "itself.",
    fix="--api-key by VLLM_API_KEY from a Secret, or a gateway that authenticates, and a ClusterIP Service behind it.",
)
def exposed_without_api_key(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Reachable from outside, no key."""
    if server.arguments.get("api_key") or "VLLM_API_KEY" in server.variables or not server.argv_known:
        return
    if server.candidate.scope == "values" and (found := charted_exposure(server.manifest)):
        yield Hit(f"exposed ({found[1]}) without API key", found[0])
    opened = [each for service in server.services for each in server.around.opens(service)]
    if server.pod.get("hostNetwork") is True and not opened:
        return
    if opened:
        shown = opened[0]
        how = text(shown.body, "spec", "type") if shown.kind == "Service" else shown.kind
        yield Hit(f"exposed ({how} {shown.name}) without API key", server.candidate.path)


@rule(
    "api-key-in-plain-text",
    Group.INSECURE,
    Severity.WARNING,
    title="API key in plain text",
    why="Everybody who may read the manifest, its Git history or the process list has the key.",
    fix="VLLM_API_KEY with valueFrom.secretKeyRef.",
)
def api_key_in_plain_text(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A key in the argv or in a variable's value."""
    key = server.arguments.text("api_key")
    if key and not is_unresolved(key) and not _comes_from_secret(server, key):
        yield Hit("API key in plain text in args", server.flag_field("api_key"))
    variable = server.variables.get("VLLM_API_KEY")
    if variable is not None and variable.source == LITERAL and variable.value and not is_unresolved(variable.value):
        yield Hit("API key in plain text in VLLM_API_KEY", server.field(variable.place))


def _comes_from_secret(server: Server, key: str) -> bool:
    return any(each.value == key and each.source != LITERAL for each in server.variables.values())


@rule(
    "hub-token-in-plain-text",
    Group.INSECURE,
    Severity.WARNING,
    title="Hub token in plain text, or not a token",
    why='A token in a manifest is known to everybody who may read it. "$NAME" in a value is not replaced by Kubernetes '
    '(only "$(NAME)" is): the engine then signs in with these very characters.',
    fix="valueFrom.secretKeyRef.",
)
def hub_token_in_plain_text(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A token that can be read, or cannot be one."""
    for name in _TOKENS:
        variable = server.variables.get(name)
        if variable is None or variable.source != LITERAL or not variable.value:
            continue
        if re.fullmatch(r"\$\{?\w+\}?", variable.value):
            yield Hit(
                f"{name} written as a literal {variable.value}: Kubernetes does not replace it",
                server.field(variable.place),
            )
        elif not is_unresolved(variable.value) and not _PLACEHOLDER.search(variable.value):
            yield Hit(f"hub token as a plain value in {name}", server.field(variable.place))


@rule(
    "trust-remote-code-unpinned",
    Group.INSECURE,
    Severity.WARNING,
    title="trust-remote-code without a pinned revision",
    why="Python files of the model's repository run in the container with its token and GPUs. Without a commit, "
    "whatever "
    "the repository holds at the next start runs.",
    fix="Remove --trust-remote-code (vLLM knows most architectures itself), or pin --revision and --code-revision to "
    "a commit.",
)
def trust_remote_code_unpinned(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Anybody's code of tomorrow."""
    if not server.arguments.on("trust_remote_code"):
        return
    pinned = [server.arguments.text(dest) or "" for dest in ("revision", "code_revision")]
    if not any(_COMMIT.fullmatch(each) for each in pinned):
        local = " (a local folder: whoever writes it)" if (server.model or "").startswith("/") else ""
        severity = Severity.NOTE if local else None
        yield Hit(f"trust-remote-code without pinned revision{local}", server.flag_field("trust_remote_code"), severity)


@rule(
    "privileged-container",
    Group.INSECURE,
    Severity.WARNING,
    title="Privileged container",
    why="A privileged container owns its node. GPUs need no privilege: the device plugin hands them in.",
    fix="Remove privileged; add single capabilities where something needs them.",
)
def privileged_container(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Root on the node."""
    if (
        at(server.container, "securityContext", "privileged") is True
        or at(server.pod, "securityContext", "privileged") is True
    ):
        yield Hit("privileged container", server.field("securityContext"))


@rule(
    "host-namespaces",
    Group.INSECURE,
    Severity.NOTE,
    title="The node's network or IPC",
    why="hostNetwork opens the port on the node itself, past network policies, and lets two pods collide; hostIPC "
    "shares the "
    "memory of every process on the node.",
    fix="Remove them; /dev/shm is an emptyDir with medium: Memory.",
)
def host_namespaces(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Shared with the node."""
    found = [
        word
        for key, word in (("hostNetwork", "host network"), ("hostIPC", "host IPC"), ("hostPID", "host PID"))
        if server.pod.get(key) is True
    ]
    if found:
        yield Hit(" and ".join(found), server.pod_field("hostNetwork"))


@rule(
    "dev-mode",
    Group.INSECURE,
    Severity.WARNING,
    title="Development endpoints switched on",
    why="VLLM_SERVER_DEV_MODE opens endpoints that put the engine to sleep, reset its caches and run functions by "
    "name, "
    "without a key.",
    fix="Remove it from whatever others can reach.",
)
def dev_mode(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Endpoints for developers."""
    variable = server.variables.get("VLLM_SERVER_DEV_MODE")
    if variable is not None and variable.value not in {"0", "", "false"}:
        yield Hit(f"VLLM_SERVER_DEV_MODE={variable.value} exposes dev endpoints", server.field(variable.place))


@rule(
    "bypasses-device-plugin",
    Group.INSECURE,
    Severity.WARNING,
    title="GPUs past the device plugin",
    why="NVIDIA_VISIBLE_DEVICES=all shows every GPU of the node, those of other pods too; CUDA_VISIBLE_DEVICES "
    "counts anew "
    "in each container and points past what the plugin gave.",
    fix="Remove it and ask for nvidia.com/gpu.",
)
def bypasses_device_plugin(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Other pods' GPUs."""
    visible, cuda = server.variables.get("NVIDIA_VISIBLE_DEVICES"), server.variables.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.value not in {"void", "none", ""}:
        yield Hit(f"NVIDIA_VISIBLE_DEVICES={visible.value} bypasses the device plugin", server.field(visible.place))
    if cuda is not None:
        yield Hit("CUDA_VISIBLE_DEVICES hard-coded", server.field(cuda.place), Severity.NOTE)


@rule(
    "mounts-over-the-image",
    Group.UPGRADE,
    Severity.NOTE,
    title="Libraries put in place from outside",
    why="LD_PRELOAD and LD_LIBRARY_PATH replace libraries of the image with those of the node or of a volume: the next "
    "driver or image may not match.",
    fix="Let the NVIDIA runtime mount the driver; build an image for anything else.",
)
def mounts_over_the_image(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Another library than the image's."""
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
        variable = server.variables.get(name)
        # Google's nodes mount the driver there, and their pages ask for the variable.
        if variable is not None and "/usr/local/nvidia/lib64" not in (variable.value or ""):
            yield Hit(f"{name} override", server.field(server.variables[name].place))
