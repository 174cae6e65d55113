"""What the suite runs on: a cluster with one GPU node, kubectl and Helm. Ours (`machine.py`) or kind (`e2e/kind`)."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from e2e.controlplane import binaries
from e2e.controlplane.kubectl import Kubectl
from e2e.controlplane.targets import HELM
from e2e.fleet.nodes import NodeSpec, manifest
from e2e.node.images import store
from e2e.node.images.store import Images
from e2e.node.machine import NAME, Machine

RIG: Final = "PLIMSOLL_RIG"
RESOURCE: Final = "nvidia.com/gpu"
# An engine asks for what its plan says, tens of GiB and some processors a replica; the node is what CI has. The plan's
# own figures are looked at in `make test`; here the kubelet has to take the pods.
SMALL_REQUESTS: Final = """[
  JSONPatch{op: "add", path: "/spec/containers/0/resources/requests/cpu", value: "10m"},
  JSONPatch{op: "add", path: "/spec/containers/0/resources/requests/memory", value: "64Mi"}
]"""
ADMISSION: Final = "admissionregistration.k8s.io/v1"
ENGINES_ONLY: Final = "object.metadata.?labels[?'app.kubernetes.io/name'].orValue('') == 'vllm'"


class HelmError(RuntimeError):
    """Helm said no; the message is its stderr."""


@dataclass(frozen=True, slots=True)
class Rig:
    """A cluster as its administrator has it."""

    kubectl: Kubectl
    node: str
    helm_program: Path
    images: Images
    """What the node holds; asked for again, they may have become others."""

    @property
    def env(self) -> dict[str, str]:
        """The environment of a shell in which `kubectl` and `helm` are this cluster's."""
        folders = [str(self.helm_program.parent), str(self.kubectl.program.parent), os.environ["PATH"]]
        helm = {f"HELM_{kind}_HOME": str(self.kubectl.cache / "helm") for kind in ("CACHE", "CONFIG", "DATA")}
        return {**os.environ, **helm, "KUBECONFIG": str(self.kubectl.kubeconfig), "PATH": ":".join(folders)}

    def helm(self, *arguments: str) -> str:
        """Run Helm and return its stdout."""
        command = [str(self.helm_program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self.env)
        if done.returncode:
            raise HelmError(f"helm {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


@contextmanager
def real_node() -> Iterator[Rig]:
    """The node of `make test-node`."""
    images = store.ensure(print)
    with Machine(images) as machine:
        rig = Rig(machine.plane.kubectl, NAME, binaries.ensure_group(HELM) / "helm", images)
        prepare(rig)
        yield rig


def chosen() -> AbstractContextManager[Rig]:
    """The rig that the environment names."""
    from e2e.kind.cluster import kind_cluster  # noqa: PLC0415 - it imports us

    rigs: dict[str, Callable[[], AbstractContextManager[Rig]]] = {"node": real_node, "kind": kind_cluster}
    return rigs[os.environ[RIG]]()


def prepare(rig: Rig) -> None:
    """GPUs as feature discovery and the device plugin would report them, and requests that fit the node."""
    spec = NodeSpec(rig.node, store.GPU, store.GPUS)
    labels = manifest(spec)["metadata"]["labels"]
    rig.kubectl("label", "node", rig.node, "--overwrite", *(f"{k}={v}" for k, v in labels.items() if "nvidia" in k))
    amount = {RESOURCE: str(store.GPUS)}
    patch = json.dumps({"status": {"capacity": amount, "allocatable": amount}})
    rig.kubectl("patch", "node", rig.node, "--subresource=status", "--type=merge", "-p", patch)
    served = rig.kubectl("api-versions").split()
    rig.kubectl.apply(*small_requests(ADMISSION if ADMISSION in served else f"{ADMISSION}beta1"))


def small_requests(api: str) -> list[dict[str, Any]]:
    """An admission policy that lowers what engines ask of the node besides GPUs."""
    name = "small-requests"
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    policy = {
        "apiVersion": api,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [pods]},
            "matchConditions": [{"name": "engines", "expression": ENGINES_ONLY}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": SMALL_REQUESTS}}],
        },
    }
    binding = {
        "apiVersion": api,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
    return [policy, binding]
