"""What only the operator's owner can allow: the node, other identities, privilege, control-plane nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from plimsoll.core.manifests.container import CONTAINER
from plimsoll.core.podtemplate.words import AT, Object, containers, one_of, owners
from plimsoll.core.policy import Allowed, listed
from plimsoll.facts.engine_env import why_refused

# What a pod has anyway.
_HARMLESS: Final = {"serviceAccountName": "default", "schedulerName": "default-scheduler"}
_CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_SEEKS: Final = ("In", "Exists", "Gt", "Lt")
_POWERFUL: Final[Mapping[str, str]] = {
    "cdi.k8s.io/": "it gives devices past the scheduler, GPUs of other pods among them",
    "devices.nri.io": "it gives devices of the node",
    "mounts.nri.io": "it mounts folders of the node",
    "io.kubernetes.cri-o.": "it changes how the node runs the pod",
    "io.katacontainers.": "it changes how the node runs the pod",
    "k8s.v1.cni.cncf.io/": "it joins further networks",
    "v1.multus-cni.io/": "it joins further networks",
    "iam.amazonaws.com/": "it gives a cloud identity",
    "aadpodidbinding": "it gives a cloud identity",
}
_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"


def beyond(template: Object, allowed: Allowed) -> Iterator[str]:
    """Why the owner's policy refuses a template, Secrets apart."""
    spec = template.get("spec", {})
    yield from _pod_fields(spec, allowed)
    yield from _names(spec, allowed)
    yield from _nodes(spec, allowed)
    for where, container in containers(spec):
        yield from _rights(where, container, allowed)
        yield from _variables(where, container, allowed)
        yield from _host_ports(where, container, allowed)
    yield from _annotated(template.get("metadata", {}), allowed)
    if not allowed.privileged:
        yield from _unconfined(template)


def _pod_fields(spec: Object, allowed: Allowed) -> Iterator[str]:
    for key, permitted, setting in (
        ("hostNetwork", allowed.host_network, "hostNetwork"),
        ("hostPID", allowed.host_pid, "hostPID"),
        ("hostIPC", allowed.host_ipc, "hostIPC"),
        ("automountServiceAccountToken", allowed.service_account_tokens, "serviceAccountTokens"),
        ("nodeName", allowed.node_names, "nodeNames"),
    ):
        if spec.get(key) and not permitted:
            yield owners(f"{AT}.spec.{key}", spec[key], "leave it out", setting)


def _names(spec: Object, allowed: Allowed) -> Iterator[str]:
    for key, on_list, setting in (
        ("serviceAccountName", allowed.service_accounts, "serviceAccounts"),
        ("priorityClassName", allowed.priority_classes, "priorityClasses"),
        ("runtimeClassName", allowed.runtime_classes, "runtimeClasses"),
        ("schedulerName", allowed.schedulers, "schedulers"),
    ):
        if key in spec and spec[key] != _HARMLESS.get(key) and not listed(spec[key], on_list):
            yield owners(f"{AT}.spec.{key}", spec[key], one_of(on_list), setting)


def _nodes(spec: Object, allowed: Allowed) -> Iterator[str]:
    """Nothing that leads to control-plane nodes: labels, affinity, or taints tolerated (all of them, too)."""
    if allowed.control_plane_nodes:
        return
    for key in spec.get("nodeSelector", {}):
        if key in _CONTROL_PLANE:
            yield owners(f"{AT}.spec.nodeSelector", key, "other labels", "controlPlaneNodes")
    for toleration in spec.get("tolerations", ()):
        key = toleration.get("key") or ""
        if key in _CONTROL_PLANE or not key:
            shown = key or "every taint"
            yield owners(f"{AT}.spec.tolerations[].key", shown, "keys of other taints", "controlPlaneNodes")
    for expression in _expressions(spec.get("affinity", {}).get("nodeAffinity")):
        if expression.get("key") in _CONTROL_PLANE and expression.get("operator", "In") in _SEEKS:
            yield owners(f"{AT}.spec.affinity", expression["key"], "other labels", "controlPlaneNodes")


def _expressions(node: Any) -> Iterator[Object]:  # noqa: ANN401 - the user's own JSON
    """Every node selector requirement, wherever it stands."""
    if isinstance(node, Mapping):
        if isinstance(node.get("key"), str):
            yield node
        children: Iterable[Any] = node.values()
    else:
        children = node if isinstance(node, Sequence) and not isinstance(node, str) else ()
    for child in children:
        yield from _expressions(child)


def _rights(where: str, container: Object, allowed: Allowed) -> Iterator[str]:
    rights = container.get("securityContext", {})
    for key in ("privileged", "allowPrivilegeEscalation"):
        if rights.get(key) and not allowed.privileged:
            yield owners(f"{where}.securityContext.{key}", True, "false", "privileged")
    if rights.get("procMount", "Default") != "Default" and not allowed.privileged:
        yield owners(f"{where}.securityContext.procMount", rights["procMount"], "Default", "privileged")
    for capability in rights.get("capabilities", {}).get("add", ()):
        if not listed(capability, allowed.capabilities):
            at = f"{where}.securityContext.capabilities.add[]"
            yield owners(at, capability, one_of(allowed.capabilities), "capabilities")
    for mount in container.get("volumeMounts", ()):
        if mount.get("mountPropagation") == "Bidirectional" and not allowed.privileged:
            at = f"{where}.volumeMounts[{mount['name']}].mountPropagation"
            yield owners(at, "Bidirectional", "None or HostToContainer", "privileged")


def _variables(where: str, container: Object, allowed: Allowed) -> Iterator[str]:
    for variable in container.get("env", ()):
        name, at = variable["name"], f"{where}.env[{variable['name']}]"
        why = why_refused(name, engine=container["name"] == CONTAINER)
        if why and not listed(name, allowed.env):
            yield owners(at, variable.get("value", "set"), f"other variables ({why})", "env")


def _host_ports(where: str, container: Object, allowed: Allowed) -> Iterator[str]:
    """A port or a probe of the node's network is that network, in part."""
    if allowed.host_network:
        return
    for port in container.get("ports", ()):
        if "hostPort" in port:
            yield owners(f"{where}.ports[].hostPort", port["hostPort"], "leave it out", "hostNetwork")
    for kind in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
        for host in _hosts(container.get(kind)):
            yield owners(f"{where}.{kind}", f"host: {host}", "the pod itself: leave host out", "hostNetwork")


def _hosts(node: Any) -> Iterator[str]:  # noqa: ANN401 - the user's own JSON
    if isinstance(node, Mapping):
        if node.get("host"):
            yield str(node["host"])
        for child in node.values():
            yield from _hosts(child)


def _annotated(metadata: Object, allowed: Allowed) -> Iterator[str]:
    """Keys by which a node or a cloud gives a pod more than its spec says."""
    for kind in ("labels", "annotations"):
        for key, value in metadata.get(kind, {}).items():
            why = next((why for prefix, why in _POWERFUL.items() if key.startswith(prefix)), None)
            if why and not listed(key, allowed.annotations):
                yield owners(f"{AT}.metadata.{kind}[{key}]", value, f"other keys ({why})", "annotations")


def _unconfined(template: Object) -> Iterator[str]:
    spec = template.get("spec", {})
    contexts = [(f"{AT}.spec", spec), *containers(spec)]
    for where, holder in contexts:
        profile = holder.get("securityContext", {}).get("seccompProfile", {})
        if profile.get("type") == "Unconfined":
            at = f"{where}.securityContext.seccompProfile.type"
            yield owners(at, "Unconfined", "RuntimeDefault or Localhost", "privileged")
    for key, value in template.get("metadata", {}).get("annotations", {}).items():
        if key.startswith(_APPARMOR) and value == "unconfined":
            yield owners(f"{AT}.metadata.annotations[{key}]", value, "runtime/default", "privileged")
