"""Where a pod finds the weights and keeps its caches: volumes, mounts, environment and the engine's model argument.

Caches of compiled code stand under ``.plimsoll/<engine version>-<GPU>`` of the volume that outlives the pod, where
there is one: kernels of another release or another GPU are never picked up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.api.weights import ClaimSource, FromHub, ImageSource, NodeFolderSource, SecretKey, WeightsSource
from plimsoll.core.manifests.container import CACHE, CACHE_VOLUME, WEIGHTS, WEIGHTS_VOLUME

TOKEN: Final = "HF_TOKEN"  # noqa: S105 - the variable's name
_OFFLINE: Final[Mapping[str, str]] = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
# Each kind of compiled code by the variable that places it: vLLM, torch, Triton, FlashInfer, DeepGEMM, the CUDA driver.
_COMPILED: Final[Mapping[str, str]] = {
    "VLLM_CACHE_ROOT": "vllm",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "DG_JIT_CACHE_DIR": "deep-gemm",
    "CUDA_CACHE_PATH": "cuda",
}

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Weights:
    """What a source means for the pod. ``model`` is what the engine is told to serve."""

    model: str
    hub_home: str
    compiled: str
    volumes: tuple[Manifest, ...]
    mounts: tuple[Manifest, ...]
    offline: bool = False
    hub: FromHub = field(default_factory=FromHub)

    @property
    def env(self) -> list[Manifest]:
        """Variables of the engine's container, in a fixed order."""
        plain = {"HF_HOME": self.hub_home} | {name: f"{self.compiled}/{at}" for name, at in _COMPILED.items()}
        plain |= _OFFLINE if self.offline else {}
        token = self.hub.token_secret
        return [*({"name": n, "value": v} for n, v in plain.items()), *([_secret(token)] if token else [])]

    @property
    def args(self) -> tuple[str, ...]:
        """What the engine is told after the model's name."""
        return ("--revision", self.hub.revision) if self.hub.revision else ()


def weights(source: WeightsSource | None, model_id: str, key: str) -> Weights:
    """The pod's part of a source; ``key`` names engine version and GPU of compiled code."""
    if source is None:
        return _own_disk(model_id, key, offline=model_id.startswith("/"))
    if source.pvc:
        return _folder(source.pvc, key) if source.pvc.path else _cached(source.pvc, model_id, key)
    if source.host_path:
        return _node_folder(source.host_path, model_id, key)
    return _image(source.image, key) if source.image else _own_disk(model_id, key, hub=source.hub or FromHub())


def _own_disk(model: str, key: str, *, offline: bool = False, hub: FromHub | None = None) -> Weights:
    """Everything on the pod's own disk, gone with it."""
    return Weights(
        model=model,
        hub_home=f"{CACHE}/huggingface",
        compiled=_compiled(CACHE, key),
        volumes=({"name": CACHE_VOLUME, "emptyDir": {}},),
        mounts=({"name": CACHE_VOLUME, "mountPath": CACHE},),
        offline=offline,
        hub=hub or FromHub(),
    )


def _cached(claim: ClaimSource, model: str, key: str) -> Weights:
    """The claim keeps what the hub gave. Read-only, it must be there already."""
    if claim.read_only:
        return _beside_own_disk(_claim(claim), model, key, hub=claim)
    volume = {"name": CACHE_VOLUME, **_claim(claim)}
    return Weights(
        model, CACHE, _compiled(CACHE, key), (volume,), ({"name": CACHE_VOLUME, "mountPath": CACHE},), hub=claim
    )


def _folder(claim: ClaimSource, key: str) -> Weights:
    """The weights lie in a folder of the claim; nothing is fetched."""
    model = f"{WEIGHTS}/{claim.path}"
    if claim.read_only:
        return _beside_own_disk(_claim(claim), model, key)
    volume, mount = {"name": WEIGHTS_VOLUME, **_claim(claim)}, {"name": WEIGHTS_VOLUME, "mountPath": WEIGHTS}
    compiled = _compiled(WEIGHTS, key)
    return Weights(model, f"{compiled}/huggingface", compiled, (volume,), (mount,), offline=True)


def _node_folder(node: NodeFolderSource, model: str, key: str) -> Weights:
    volume = {"name": CACHE_VOLUME, "hostPath": {"path": node.path, "type": "DirectoryOrCreate"}}
    return Weights(
        model, CACHE, _compiled(CACHE, key), (volume,), ({"name": CACHE_VOLUME, "mountPath": CACHE},), hub=node
    )


def _image(image: ImageSource, key: str) -> Weights:
    policy = {"pullPolicy": image.pull_policy} if image.pull_policy else {}
    model = f"{WEIGHTS}/{image.path}" if image.path else WEIGHTS
    return _beside_own_disk({"image": {"reference": image.reference, **policy}}, model, key)


def _beside_own_disk(volume: Manifest, model: str, key: str, hub: FromHub | None = None) -> Weights:
    """Weights on a volume that nobody writes, caches on the pod's own disk."""
    return Weights(
        model=model,
        hub_home=WEIGHTS if hub else f"{CACHE}/huggingface",
        compiled=_compiled(CACHE, key),
        volumes=({"name": CACHE_VOLUME, "emptyDir": {}}, {"name": WEIGHTS_VOLUME, **volume}),
        mounts=(
            {"name": CACHE_VOLUME, "mountPath": CACHE},
            {"name": WEIGHTS_VOLUME, "mountPath": WEIGHTS, "readOnly": True},
        ),
        offline=True,
        hub=hub or FromHub(),
    )


def _claim(claim: ClaimSource) -> Manifest:
    read_only = {"readOnly": True} if claim.read_only else {}
    return {"persistentVolumeClaim": {"claimName": claim.claim_name, **read_only}}


def _compiled(root: str, key: str) -> str:
    return f"{root}/.plimsoll/{key}"


def _secret(token: SecretKey) -> Manifest:
    return {"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": token.name, "key": token.key}}}
