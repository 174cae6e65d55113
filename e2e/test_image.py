"""The operator's image without a container engine: the Containerfile says what `tools/image.py` and the node's suite
say, and what is in it runs alone in a root of its own, as nobody, with a pod's credentials.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from e2e.controlplane import ControlPlane
from e2e.controlplane.api import Api
from e2e.controlplane.kubectl import Kubectl
from e2e.labrun import CHECKOUT
from e2e.node.images import runtime, store
from e2e.operator_process import NAMESPACE, create_account
from tools import image

CONTAINERFILE: Final = (CHECKOUT / "Containerfile").read_text()
ACCOUNT: Final = Path("var/run/secrets/kubernetes.io/serviceaccount")
SMALL: Final = "/opt/plimsoll/yarl"


def test_the_container_file_starts_what_the_node_starts() -> None:
    entry_point = json.loads(re.findall(r"^ENTRYPOINT (.*)", CONTAINERFILE, re.MULTILINE)[0])
    assert entry_point == [runtime.PYTHON, "-m", "plimsoll"]
    assert f"\nUSER {runtime.USER_ID}:{runtime.USER_ID}\n" in CONTAINERFILE
    (variables,) = re.findall(r"^ENV ((?:.*\\\n)*.*)", CONTAINERFILE, re.MULTILINE)
    assert dict(re.findall(r"(\w+)=(\S+)", variables)) == store.PYTHON_ENV
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    assert f'image.version="{version}"' in CONTAINERFILE


def test_the_build_needs_only_what_dockerignore_lets_through(tmp_path: Path) -> None:
    for line in (CHECKOUT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            copy(CHECKOUT / line[1:], tmp_path / line[1:])
    code = "from pathlib import Path; from tools import image; print(image.ROOT); image.lay_out(Path('root'), {})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(tmp_path)
    assert (tmp_path / "root" / "opt" / "plimsoll" / "plimsoll" / "__main__.py").exists()
    assert (tmp_path / "tools" / "bootstrap.sh").exists()


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


def test_the_same_commit_gives_the_same_bytes(tmp_path: Path) -> None:
    small = {path: source for path, source in image.content().items() if path.startswith(SMALL)}
    built = []
    for name in ("one", "another"):
        image.build(tmp_path / name, small)
        built.append(digests(tmp_path / name))
    assert built[0] == built[1]
    assert "opt/plimsoll/plimsoll/facts/gpus.json" in built[0]
    assert any(path.endswith(".pyc") for path in built[0])


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): f"{path.stat().st_mtime} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_it_is_as_small_as_it_says() -> None:
    layer = image.content()
    programs = {Path(path).name for path in layer if Path(path).parent.name in {"bin", "sbin"}}
    assert {name.rstrip("0123456789.") for name in programs} == {"python"}
    packages = {path.split("/")[3].split("-")[0].lower() for path in layer if path.startswith("/opt/plimsoll/")}
    assert not {"pip", "setuptools", "hatchling", "pytest", "mypy", "ruff", "cryptography", "e2e"} & packages
    records = dict(image.package_records({path: source for path, source in layer.items() if "/libssl" in path}))
    assert any("Package: libssl" in text for text in records.values()) or shutil.which("dpkg-query") is None
    assert any(path.endswith(".dist-info/METADATA") for path in layer)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("chroot needs root; make test-node runs the same files on a real kubelet")
    folder = tmp_path / "root"
    image.lay_out(folder, image.content())
    yield folder
    shutil.rmtree(folder)


@pytest.mark.controlplane
def test_it_runs_alone_as_nobody_with_a_pods_credentials(
    control_plane: ControlPlane, kubectl: Kubectl, root: Path
) -> None:
    create_account(kubectl)
    kubectl("apply", "--server-side", "-f", str(CHECKOUT / "crds"))
    token = kubectl("create", "token", "plimsoll", "-n", NAMESPACE)
    secrets = root / ACCOUNT
    secrets.mkdir(parents=True)
    (secrets / "token").write_text(token)
    (secrets / "namespace").write_text(NAMESPACE)
    shutil.copyfile(control_plane.ca, secrets / "ca.crt")
    (secrets / "ca.crt").chmod(0o444)

    host, _, port = control_plane.url.removeprefix("https://").partition(":")
    own_port = str(control_plane.lease_port())
    cluster = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    settings = {"PLIMSOLL_HTTP_PORT": own_port, "PLIMSOLL_HTTP_HOST": "127.0.0.1", "PLIMSOLL_NAMESPACE": NAMESPACE}
    chroot = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin")
    assert chroot
    user = f"--userspec={runtime.USER_ID}:{runtime.USER_ID}"
    command = [chroot, user, str(root), runtime.PYTHON, "-m", "plimsoll"]
    process = control_plane.process("image", command, env={**store.PYTHON_ENV, **cluster, **settings})
    process.start()
    try:
        ready = Api(f"http://127.0.0.1:{own_port}", control_plane.ca).probe("/readyz")
        process.await_ready(ready, within_seconds=60)
    finally:
        process.stop()
    assert '"level": "error"' not in process.log.read_text()
