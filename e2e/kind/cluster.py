"""A kind cluster as a rig: made for one run and deleted after it. Not run on the machines we develop on (no Docker)."""

import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.controlplane import binaries
from e2e.controlplane.kubectl import Kubectl
from e2e.controlplane.targets import HELM
from e2e.node.images import archive, store
from e2e.node.images.store import Images
from e2e.node.rig import Rig, prepare

CONFIG: Final = Path(__file__).parent / "cluster.yaml"
IMAGE: Final = "KIND_IMAGE"
NEEDED: Final = ("docker", "kind")


@contextmanager
def kind_cluster() -> Iterator[Rig]:
    """One node with our images in it; the caller's kubeconfig is left alone."""
    name = f"plimsoll-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix="plimsoll-kind-") as folder:
        kubeconfig = Path(folder, "kubeconfig")
        try:
            _kind("create", "cluster", "--name", name, "--config", str(CONFIG), "--wait", "180s", *_image())
            kubeconfig.touch(mode=0o600)
            kubeconfig.write_text(_kind("get", "kubeconfig", "--name", name))
            images = store.ensure(print)
            _load(name, images, Path(folder, "images.tar"))
            kubectl = Kubectl(binaries.ensure().kubectl, kubeconfig, cache=Path(folder, "kubectl-cache"))
            rig = Rig(kubectl, f"{name}-control-plane", binaries.ensure_group(HELM) / "helm", images)
            prepare(rig)
            yield rig
        finally:
            _kind("delete", "cluster", "--name", name)


def _image() -> list[str]:
    """Another Kubernetes than kind's own choice, if asked for."""
    return ["--image", os.environ[IMAGE]] if os.environ.get(IMAGE) else []


def _load(name: str, images: Images, tar: Path) -> None:
    with tar.open("wb") as file:
        archive.write((images.operator, images.engine, images.small_engine), file)
    _kind("load", "image-archive", str(tar), "--name", name)


def _kind(*arguments: str) -> str:
    environment = {**os.environ, "KUBECONFIG": os.devnull}
    return subprocess.run(["kind", *arguments], check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
