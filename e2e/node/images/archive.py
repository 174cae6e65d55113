"""A `docker save` archive, which containerd, kind and Docker import: a manifest, a configuration, layers."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO


@dataclass(frozen=True, slots=True)
class Image:
    """Names, layers (tar files, the lowest first) and how a container of it starts."""

    names: tuple[str, ...]
    layers: tuple[Path, ...]
    entrypoint: Sequence[str]
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


def write(image: Image, out: IO[bytes], *, architecture: str) -> None:
    """The archive of one image, as a stream."""
    config = json.dumps(_config(image, architecture)).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    layer_names = [f"{_digest(layer)}.tar" for layer in image.layers]
    manifest = [{"Config": config_name, "RepoTags": list(image.names), "Layers": layer_names}]
    with tarfile.open(fileobj=out, mode="w|") as tar:
        _add(tar, config_name, config)
        _add(tar, "manifest.json", json.dumps(manifest).encode())
        for name, layer in zip(layer_names, image.layers, strict=True):
            tar.add(layer, name)


def _config(image: Image, architecture: str) -> dict[str, object]:
    return {
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Entrypoint": list(image.entrypoint),
            "User": image.user,
            "Env": [f"{name}={value}" for name, value in image.env.items()],
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}" for layer in image.layers]},
    }


def _digest(layer: Path) -> str:
    with layer.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
