"""An OCI image layout in a tar, which containerd and kind import: blobs by their digest, and an index with names."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Image:
    """Names, layers (tar files, the lowest first) and how a container of it starts."""

    names: tuple[str, ...]
    layers: tuple[Path, ...]
    entrypoint: Sequence[str]
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    mirrors: tuple[str, ...] = ()
    """Repositories that hold it too, under its digest."""

    @property
    def digest(self) -> str:
        """What a reference by digest names."""
        return _sha256(self.manifest)

    @property
    def manifest(self) -> bytes:
        config = {"mediaType": _CONFIG, "digest": _sha256(self.config), "size": len(self.config)}
        layers = [{"mediaType": _LAYER, "digest": _digest(x), "size": x.stat().st_size} for x in self.layers]
        return _json({"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": layers})

    @property
    def config(self) -> bytes:
        container = {
            "Entrypoint": list(self.entrypoint),
            "User": self.user,
            "Env": [f"{name}={value}" for name, value in self.env.items()],
            "WorkingDir": "/",
        }
        return _json(
            {
                "architecture": ARCHITECTURES[platform.machine()],
                "os": "linux",
                "created": "1970-01-01T00:00:00Z",
                "config": container,
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in self.layers]},
            }
        )


def write(images: Sequence[Image], out: IO[bytes]) -> None:
    """The archive of some images as a stream; what several have is in it once."""
    with tarfile.open(fileobj=out, mode="w|") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        entries = [entry for image in images for entry in _index_entries(image)]
        _add(tar, "index.json", _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}))
        for digest, content in {_sha256(blob): blob for i in images for blob in (i.config, i.manifest)}.items():
            _add(tar, _blob(digest), content)
        for digest, layer in {_digest(layer): layer for image in images for layer in image.layers}.items():
            tar.add(layer, _blob(digest))


def _index_entries(image: Image) -> Iterator[dict[str, Any]]:
    for name in (*image.names, *(f"{mirror}@{image.digest}" for mirror in image.mirrors)):
        known_as = {"io.containerd.image.name": name}
        yield {"mediaType": _MANIFEST, "digest": image.digest, "size": len(image.manifest), "annotations": known_as}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


@cache
def _digest(layer: Path) -> str:
    with layer.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
