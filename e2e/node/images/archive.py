"""A `docker save` archive, which containerd, kind and Docker import: manifests, configurations, layers."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Image:
    """Names, layers (tar files, the lowest first) and how a container of it starts."""

    names: tuple[str, ...]
    layers: tuple[Path, ...]
    entrypoint: Sequence[str]
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


def write(images: Sequence[Image], out: IO[bytes]) -> None:
    """The archive of some images as a stream; a layer that several have is in it once."""
    layers = {layer: _digest(layer) for image in images for layer in image.layers}
    manifest = []
    with tarfile.open(fileobj=out, mode="w|") as tar:
        for image in images:
            config = json.dumps(_config(image, [layers[layer] for layer in image.layers])).encode()
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(tar, name, config)
            names = [f"{layers[layer]}.tar" for layer in image.layers]
            manifest.append({"Config": name, "RepoTags": list(image.names), "Layers": names})
        _add(tar, "manifest.json", json.dumps(manifest).encode())
        for layer, digest in layers.items():
            tar.add(layer, f"{digest}.tar")


def _config(image: Image, digests: Sequence[str]) -> dict[str, object]:
    return {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Entrypoint": list(image.entrypoint),
            "User": image.user,
            "Env": [f"{name}={value}" for name, value in image.env.items()],
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }


def _digest(layer: Path) -> str:
    with layer.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
