"""The images of a node, their layers kept in the user's cache and made again only when what is in them changed."""

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from e2e.controlplane import golang
from e2e.controlplane.binaries import cache_folder
from e2e.fleet import vllm_args
from e2e.node.images import application, layer, runtime
from e2e.node.images.archive import Image
from e2e.node.images.layer import Layer

PAUSE_SOURCE: Final = Path(__file__).parent / "pause" / "main.go"
CHART: Final = application.CHECKOUT / "charts" / "plimsoll"
PAUSE_NAME: Final = "plimsoll.test/pause:1"
# What the operator asks for by itself (core/manifests/pod.py), so that no test has to name an image.
# Another home of the images, for who follows the part of docs/install.md about clusters without internet.
MIRROR: Final = "mirror.test"
ENGINE: Final = "docker.io/vllm/vllm-openai"
ENGINE_NAME: Final = f"{ENGINE}:v{vllm_args.NEWEST}"
# An engine of this release finds less than the node's label says, as with a wrong label, a shared GPU or a leak.
SMALL_ENGINE_VERSION: Final = "0.25.1"
SMALL_GPU: Final = "NVIDIA-L4"
GPU: Final = "NVIDIA-H100-80GB-HBM3"
GPUS: Final = 8
LOAD_SECONDS: Final = 3
KEEP_SECONDS: Final = 7 * 24 * 3600
PYTHON_ENV: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONPATH": application.FOLDER,
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "LANG": "C.UTF-8",
}


@dataclass(frozen=True, slots=True)
class Images:
    """All that a node needs, since it can pull nothing."""

    pause: Image
    operator: Image
    engine: Image
    small_engine: Image

    @property
    def all(self) -> tuple[Image, ...]:
        return self.pause, self.operator, self.engine, self.small_engine


def ensure(log: Callable[[str], None]) -> Images:
    """The images; makes the layers that are missing."""
    folder = cache_folder() / "node"
    folder.mkdir(parents=True, exist_ok=True)
    python = _kept(folder, "python", runtime.layer(), log)
    operator = _kept(folder, "operator", application.operator_layer(), log)
    engine = _kept(folder, "engine", application.engine_layer(), log)
    pause = _kept(folder, "pause", {"/pause": _pause_program(folder, log)}, log)
    _drop_old(folder)
    return Images(
        pause=Image((PAUSE_NAME,), (pause,), ["/pause"], user="65535:65535"),
        operator=Image(
            (operator_name(),),
            (python, operator),
            [runtime.PYTHON, "-m", "plimsoll"],
            user=f"{runtime.USER_ID}:{runtime.USER_ID}",
            env=PYTHON_ENV,
            mirrors=(f"{MIRROR}/plimsoll",),
        ),
        engine=_engine((python, operator, engine), vllm_args.NEWEST, GPU),
        small_engine=_engine((python, operator, engine), SMALL_ENGINE_VERSION, SMALL_GPU),
    )


def _engine(layers: tuple[Path, ...], version: str, gpu: str) -> Image:
    """A fake vLLM, root as in vLLM's own image. It cannot see a GPU: what it would find comes with the image."""
    found = {
        "FLEET_GPU": gpu,
        "FLEET_VISIBLE_GPUS": str(GPUS),
        "FLEET_LOAD_SECONDS": str(LOAD_SECONDS),
        "FLEET_VLLM_VERSION": version,
    }
    entrypoint = [runtime.PYTHON, "-m", "e2e.fleet.serve"]
    mirrors = (f"{MIRROR}/vllm-openai",)
    return Image((f"{ENGINE}:v{version}",), layers, entrypoint, env={**PYTHON_ENV, **found}, mirrors=mirrors)


def operator_name() -> str:
    """The image that the chart asks for when nobody names another."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return f"{values['image']['repository']}:{values['image']['tag'] or chart['appVersion']}"


def _kept(folder: Path, name: str, content: Layer, log: Callable[[str], None]) -> Path:
    """The layer's tar in the cache. The time of its file is that of its last use."""
    kept = folder / f"{name}-{layer.key(content)}.tar"
    if not kept.exists():
        log(f"making the image layer {kept.name}")
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as scratch:
            draft = Path(scratch, kept.name)
            layer.write(content, draft)
            draft.replace(kept)
    kept.touch()
    return kept


def _pause_program(folder: Path, log: Callable[[str], None]) -> Path:
    go = golang.find(cache_folder() / "controlplane")
    key = hashlib.sha256(PAUSE_SOURCE.read_bytes() + go.version.encode()).hexdigest()[:16]
    program = folder / f"pause-{key}"
    if not program.exists():
        if not go.installed:
            golang.install(go, log)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as scratch:
            draft = Path(scratch, "pause")
            subprocess.run(
                [str(go.path), "build", "-trimpath", "-ldflags=-s -w", "-o", str(draft), str(PAUSE_SOURCE)],
                env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
                check=True,
            )
            draft.replace(program)
    return program


def _drop_old(folder: Path) -> None:
    """Layers that no run has used for a week."""
    for file in folder.glob("*.tar"):
        if file.stat().st_mtime < time.time() - KEEP_SECONDS:
            file.unlink(missing_ok=True)
