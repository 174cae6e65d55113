"""The real node: control plane, containerd, kubelet and kube-proxy. Only inside the namespaces (`inside.py`)."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from e2e.controlplane import ControlPlane, binaries
from e2e.controlplane.api import Api
from e2e.controlplane.identity import User
from e2e.controlplane.process import Process
from e2e.controlplane.scratch import MARK
from e2e.controlplane.targets import NODE
from e2e.node import containerd, kubelet, packages
from e2e.node.images import archive
from e2e.node.images.archive import Image
from e2e.node.images.store import Images
from e2e.node.inside import NODE_ADDRESS

NAME: Final = "node-1"
READY_SECONDS: Final = 60.0
PROXY_USER: Final = "system:kube-proxy"  # RBAC has a binding for this name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of the whole run; the janitor outside removes it, when nothing in here can be using it any more."""

    path: Path

    @classmethod
    def ours(cls) -> Self:
        return cls(Path(os.environ[MARK]))

    def mark(self) -> dict[str, str]:
        return {MARK: str(self.path)}


class Machine:
    """`with Machine(images) as machine:`; then its node is Ready and Services lead to pods."""

    plane: ControlPlane

    def __init__(self, images: Images) -> None:
        self._images = images
        self._folder = RunFolder.ours()
        self._users = {
            user.name: user for user in (User.named(f"system:node:{NAME}", "system:nodes"), User.named(PROXY_USER))
        }
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.plane = stack.enter_context(
                ControlPlane(
                    node_address=NODE_ADDRESS, prometheus=False, scratch=self._folder, users=tuple(self._users.values())
                )
            )
            self._start_containerd(stack)
            self._start_kubelet(stack)
            self._start_proxy(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_containerd(self, stack: ExitStack) -> None:
        """With all images in it."""
        files = containerd.Files.below(self.plane.workdir)
        plugins, runc = packages.cni_folder(), packages.find("runc")
        assert plugins, "packages.ensure() comes first"
        assert runc, "packages.ensure() comes first"
        files.write(cni_plugins=plugins, runc=runc, pause_image=self._images.pause.names[0])
        process = self._launch(stack, "containerd", [packages.find("containerd"), "--config", files.config])
        process.await_ready(_containerd_answers, within_seconds=READY_SECONDS)
        _import(self._images.all)

    def _start_kubelet(self, stack: ExitStack) -> None:
        folder = self.plane.workdir / "kubelet"
        folder.mkdir()
        resolv_conf = folder / "resolv.conf"
        resolv_conf.touch()  # no name server: no packet leaves
        config = _write(
            folder / "config.yaml", kubelet.kubelet(folder, cgroup=self._folder.path.name, resolv_conf=resolv_conf)
        )
        arguments = [
            binaries.ensure_group(NODE) / "kubelet",
            f"--config={config}",
            f"--kubeconfig={self._kubeconfig(f'system:node:{NAME}')}",
            f"--root-dir={folder / 'root'}",
            f"--cert-dir={folder / 'tls'}",
            f"--hostname-override={NAME}",
            f"--node-ip={NODE_ADDRESS}",
        ]
        process = self._launch(stack, "kubelet", arguments)
        process.await_ready(self._node_is_ready, within_seconds=READY_SECONDS)

    def _start_proxy(self, stack: ExitStack) -> None:
        config = kubelet.kube_proxy(kubeconfig=self._kubeconfig(PROXY_USER), node=NAME)
        path = _write(self.plane.workdir / "kube-proxy.yaml", config)
        process = self._launch(stack, "kube-proxy", [binaries.ensure_group(NODE) / "kube-proxy", f"--config={path}"])
        health = Api(f"http://127.0.0.1:{kubelet.PROXY_HEALTH_PORT}", self.plane.ca)
        process.await_ready(health.probe("/healthz"), within_seconds=READY_SECONDS)

    def _launch(self, stack: ExitStack, name: str, command: list[Any]) -> Process:
        process = self.plane.process(name, [str(word) for word in command], env={"PATH": packages.SEARCH_PATH})
        process.start()
        # Nothing to lose: the pods go with the namespaces.
        stack.callback(process.kill, comes_back=False)
        return process

    def _kubeconfig(self, user: str) -> Path:
        return self.plane.kubeconfig_for_token(user, self._users[user].token)

    def _node_is_ready(self) -> bool:
        nodes = self.plane.kubectl.get("nodes")["items"]
        conditions = [condition for node in nodes for condition in node["status"].get("conditions", ())]
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _ctr(*arguments: str) -> list[str]:
    return [
        str(packages.find("ctr")),
        f"--address={containerd.SOCKET}",
        f"--namespace={containerd.NAMESPACE}",
        *arguments,
    ]


def _containerd_answers() -> bool:
    return subprocess.run(_ctr("version"), check=False, capture_output=True).returncode == 0


def _import(images: Sequence[Image]) -> None:
    with subprocess.Popen(
        _ctr("images", "import", "-"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as importing:
        assert importing.stdin
        assert importing.stdout
        archive.write(images, importing.stdin)
        importing.stdin.close()
        said = importing.stdout.read().decode(errors="replace")
    if importing.returncode:
        raise RuntimeError(f"containerd did not take the images: {said}")


def _write(path: Path, config: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(config))
    return path
