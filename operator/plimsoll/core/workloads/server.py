"""One vLLM server of a manifest: what the engine gets, and what the pod around it does."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from plimsoll.core.workloads.accelerators import accelerators, claims_devices, gpu_count, product_of, selector_of
from plimsoll.core.workloads.arguments import Arguments
from plimsoll.core.workloads.candidates import FINISHING, RUNTIMES, Candidate
from plimsoll.core.workloads.images import Image, Release, image_of
from plimsoll.core.workloads.launch import Launch, is_unresolved
from plimsoll.core.workloads.neighbours import Named, Neighbours
from plimsoll.core.workloads.tree import Tree, at, entries, part, text, whole
from plimsoll.core.workloads.variables import Variable, literals

DEFAULT_PORT: Final = 8000
DEFAULT_GRACE_SECONDS: Final = 30
_DEPLOYED: Final = frozenset({"Deployment", "Rollout", "CloneSet"})


@dataclass(frozen=True)
class Server:
    """A container that runs vLLM. What is not known is None; ``live_release`` is what a running one says of itself."""

    candidate: Candidate
    launch: Launch
    variables: Mapping[str, Variable]
    around: Neighbours
    given_product: str | None = None
    live_release: Release | None = None
    companions: int = 0
    """Other vLLM servers that the same container starts."""

    @property
    def manifest(self) -> Tree:
        """The object it stands in."""
        return self.candidate.manifest

    @property
    def container(self) -> Tree:
        """The container."""
        return self.candidate.container

    @property
    def pod(self) -> Tree:
        """The pod's spec, or what stands for it."""
        return self.candidate.pod

    @cached_property
    def kind(self) -> str:
        """The object's kind; ``values`` for Helm values."""
        return str(self.manifest.get("kind") or "values")

    @cached_property
    def name(self) -> str:
        """The object's name; of values the container's."""
        found = (
            text(self.manifest, "metadata", "name")
            or text(self.container, "name")
            or text(self.container, "nameOverride")
        )
        return found or (text(self.manifest, "metadata", "generateName") or "").rstrip("-") or "unnamed"

    @cached_property
    def namespace(self) -> str:
        """The namespace as written; empty where it is not."""
        return text(self.manifest, "metadata", "namespace") or ""

    @property
    def container_name(self) -> str:
        """The container's name."""
        return text(self.container, "name") or ""

    @property
    def full_name(self) -> str:
        """``namespace/name`` as far as they are written."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @cached_property
    def image(self) -> Image | None:
        """The container's image."""
        return image_of(self.container)

    @cached_property
    def arguments(self) -> Arguments:
        """The flags; none where the argv is not known (see ``argv_known``)."""
        return Arguments(self.launch.argv or (), positional_model=self.launch.positional_model)

    @property
    def argv_known(self) -> bool:
        """Whether the words that the engine gets are in the manifest."""
        return self.launch.argv is not None

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """Variables whose value is known; those that the start script sets among them."""
        return {**literals(self.variables), **(self.launch.variables or {})}

    @cached_property
    def model(self) -> str | None:
        """The model as the engine is told; None where it is not known."""
        named = self.arguments.model or self.candidate.model
        return named or None

    @property
    def model_known(self) -> bool:
        """Whether the model's name is one, and not a variable or a template."""
        return self.model is not None and not is_unresolved(self.model) and "{" not in self.model

    @property
    def fetches(self) -> bool:
        """Whether the weights come from the hub by their name."""
        return self.model_known and self.model is not None and not self.model.startswith(("/", ".", "~", "s3:", "gs:"))

    @property
    def release(self) -> Release | None:
        """The vLLM release: what a running one says, else what the image's tag names."""
        return self.live_release or (self.image.release if self.image else None)

    @property
    def release_text(self) -> str | None:
        """The same as people write it: ``0.32.0``."""
        return ".".join(map(str, self.release)) if self.release else None

    @cached_property
    def whole_pod(self) -> bool:
        """Whether probes, volumes and grace are in the manifest: what is absent is then really absent."""
        return self.candidate.scope == "pod" and self.candidate.given

    @property
    def is_job(self) -> bool:
        """Whether it is run to an end."""
        return self.kind in FINISHING

    @property
    def is_runtime(self) -> bool:
        """Whether other objects add resources and a model."""
        return self.kind in RUNTIMES

    @property
    def is_deployment(self) -> bool:
        """Whether pods are replaced as a Deployment does it."""
        return self.kind in _DEPLOYED and self.candidate.given

    @cached_property
    def accelerators(self) -> Mapping[str, Any]:
        """Accelerators asked for, by resource name."""
        return accelerators(self.container)

    @cached_property
    def gpus(self) -> int | None:
        """Accelerators of one pod; None where the manifest does not say."""
        return self.candidate.gpus if self.candidate.gpus is not None else gpu_count(self.accelerators)

    @property
    def asks_for_devices(self) -> bool:
        """Whether the pod asks for an accelerator in any way."""
        return bool(self.accelerators) or bool(self.candidate.gpus) or claims_devices(self.pod, self.container)

    @cached_property
    def product(self) -> str | None:
        """The GPU product by its node label: told, written, or that of the cluster's nodes that fit."""
        named = self.candidate.product or product_of(self.pod, self.accelerators)
        if named is None and self.gpus:
            there = self.around.products(selector_of(self.pod))
            named = next(iter(there)) if len(there) == 1 else None
        return named or self.given_product

    @property
    def on_cpu(self) -> bool:
        """Whether the engine is one for CPUs."""
        return (self.image is not None and self.image.for_cpu) or self.arguments.text("device") == "cpu"

    @property
    def other_device(self) -> str | None:
        """The kind of device where the image says another than CUDA."""
        return self.image.device if self.image else None

    @property
    def ranks(self) -> int:
        """GPUs that one engine's flags ask for: tensor × pipeline × data parallel."""
        sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
        product = 1
        for size in sizes:
            product *= max(1, self.arguments.count(size))
        return product

    def probe(self, name: str) -> Tree | None:
        """A probe of the container; None when there is none."""
        found = self.container.get(name)
        return found if isinstance(found, Mapping) and found else None

    @property
    def grace_seconds(self) -> int | None:
        """The pod's grace as written."""
        return whole(self.pod.get("terminationGracePeriodSeconds"))

    @property
    def replicas(self) -> int | None:
        """Replicas as written."""
        return self.candidate.replicas

    @cached_property
    def port(self) -> int:
        """The port that the engine serves on."""
        return self.arguments.count("port", DEFAULT_PORT)

    @cached_property
    def services(self) -> list[Named]:
        """Services that lead to the pod."""
        return self.around.services_of(self.namespace, self.candidate.labels) if self.candidate.labels else []

    @cached_property
    def scalers(self) -> list[Named]:
        """Autoscalers that write the object's replicas."""
        return self.around.scalers_of(self.namespace, self.kind, self.name)

    @cached_property
    def volumes(self) -> Mapping[str, Tree]:
        """Volumes of the pod by name."""
        named = {text(volume, "name") or "": volume for volume in entries(self.pod, "volumes")}
        for template in entries(self.manifest, "spec", "volumeClaimTemplates"):
            claim = text(template, "metadata", "name") or ""
            named[claim] = {"volumeClaimTemplate": template, "name": claim}
        return named

    @cached_property
    def mounts(self) -> Mapping[str, Tree]:
        """Volumes by the path at which the container sees them."""
        return {
            (text(mount, "mountPath") or "").rstrip("/") or "/": self.volumes.get(text(mount, "name") or "", {})
            for mount in entries(self.container, "volumeMounts")
        }

    def field(self, *keys: str) -> str:
        """The path in the object of a field of the container."""
        return ".".join((self.candidate.path, *keys)) if self.candidate.path else ".".join(keys)

    def pod_field(self, *keys: str) -> str:
        """The path in the object of a field of the pod."""
        return ".".join((self.candidate.pod_path, *keys)) if self.candidate.pod_path else ".".join(keys)

    def word_field(self, index: int) -> str:
        """The path in the object of a word of the argv, or of the container where nobody knows.

        In a script of many lines the word stands behind a ``#``, so that its line can be found.
        """
        places = self.launch.places
        if not 0 <= index < len(places):
            return self.candidate.path
        word = (self.launch.argv or ())[index]
        return self.field(places[index]) + (f"#{word}" if self.launch.in_shell else "")

    def flag_field(self, dest: str) -> str:
        """The path in the object of a flag, or of the container."""
        use = self.arguments.get(dest)
        return self.word_field(use.index) if use else self.candidate.path


def memory_of(server: Server, which: str) -> str | None:
    """``requests`` or ``limits`` of memory as written."""
    return text(part(server.container, "resources"), which, "memory")


def claim_names(server: Server) -> list[str]:
    """Claims that the pod mounts by name."""
    found = (text(volume, "persistentVolumeClaim", "claimName") for volume in server.volumes.values())
    return [name for name in found if name]


def lies_in(path: str, mount: str) -> bool:
    """Whether a path is a mount's own or below it."""
    return path == mount or path.startswith(f"{mount}/")


def keeps(volume: Tree) -> bool:
    """Whether what is written to a volume outlives the pod, or came with it."""
    if not volume or "emptyDir" in volume or "downwardAPI" in volume:
        return False
    if "configMap" in volume or "secret" in volume or "projected" in volume:
        return False
    return bool(at(volume, "hostPath", "path") != "/dev/shm")  # noqa: S108 - a path in somebody's manifest
