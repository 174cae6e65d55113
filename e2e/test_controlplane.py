"""The control plane is a real one: its controllers work, its RBAC says no, and it leaves nothing behind."""

import http.server
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.controlplane import ControlPlane, ProcessError
from e2e.controlplane.api import Api, ApiError
from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.controlplane.scratch import marked_processes
from e2e.eventually import eventually

pytestmark = pytest.mark.controlplane


def quiet(_: str) -> None:
    """Nobody reads the progress of these."""


def mentioning(path: Path) -> list[str]:
    """The command lines of all living processes that have to do with this folder."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(path) in line:
            lines.append(line)
    return lines


def config_map(name: str, namespace: str, **metadata: object) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **metadata},
    }


def pod(name: str, namespace: str, port: int, **labels: str) -> dict[str, Any]:
    container = {"name": "engine", "image": "none", "ports": [{"name": "http", "containerPort": port}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [container]},
    }


@pytest.fixture
def node(kubectl: Kubectl, namespace: str) -> Iterator[str]:
    """A node nobody plays kubelet for: Ready by decree, which is all the scheduler asks."""
    name = f"node-of-{namespace}"
    kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    status = {
        "capacity": {"cpu": "8", "memory": "64Gi", "pods": "20"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Decreed"}],
    }
    kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    yield name
    kubectl("delete", "node", name)


@pytest.fixture
def metrics_port() -> Iterator[int]:
    """A server on loopback whose every page is one sample."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(b"probe_value 42\n")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_the_server_says_which_kubernetes_it_is(control_plane: ControlPlane) -> None:
    assert control_plane.api.get("/version")["gitVersion"] == "v1.36.3"


def test_who_is_unknown_is_not_let_in_and_who_has_no_role_may_nothing(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    with pytest.raises(ApiError) as stranger:
        Api(control_plane.url, control_plane.ca, "no-such-token").get("/api/v1/pods")
    assert stranger.value.code == 401
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "default")
    account = Kubectl(kubectl.program, kubeconfig, kubectl.cache)
    with pytest.raises(KubectlError, match=f"system:serviceaccount:{namespace}:default.*cannot list"):
        account("get", "pods", "-n", namespace)
    kubectl(
        "create",
        "rolebinding",
        "reader",
        "--clusterrole=view",
        f"--serviceaccount={namespace}:default",
        "-n",
        namespace,
    )
    assert eventually(lambda: account("auth", "can-i", "list", "pods", "-n", namespace)).strip() == "yes"


def test_a_deployment_gets_pods_and_the_pods_a_node(kubectl: Kubectl, namespace: str, node: str) -> None:
    kubectl("create", "deployment", "web", "--image=none", "--replicas=3", "-n", namespace)

    def placed() -> bool:
        nodes = [pod["spec"].get("nodeName") for pod in kubectl.get("pods", "-n", namespace)["items"]]
        return nodes == [node] * 3

    eventually(placed)


def test_what_an_object_owns_goes_with_it(kubectl: Kubectl, namespace: str) -> None:
    kubectl.apply(config_map("owner", namespace))
    uid = kubectl.get("configmap", "owner", "-n", namespace)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    kubectl.apply(config_map("owned", namespace, ownerReferences=[owner]))
    kubectl("delete", "configmap", "owner", "-n", namespace)
    eventually(lambda: not kubectl("get", "configmap", "owned", "-n", namespace, "--ignore-not-found"))


def test_prometheus_finds_our_pods_by_label_and_names_them(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str, metrics_port: int
) -> None:
    ours = {"app.kubernetes.io/managed-by": "plimsoll", "plimsoll.dev/service": "qwen"}
    kubectl.apply(pod("ours", namespace, metrics_port, **ours), pod("theirs", namespace, metrics_port))
    status = json.dumps({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}], "phase": "Running"}})
    for name in ("theirs", "ours"):
        kubectl("patch", "pod", name, "-n", namespace, "--subresource=status", "--type=merge", "-p", status)
    samples = eventually(lambda: control_plane.query(f'probe_value{{namespace="{namespace}"}}'))
    assert [(sample["metric"]["pod"], sample["value"][1]) for sample in samples] == [("ours", "42")]
    assert (samples[0]["metric"]["service"], samples[0]["metric"]["job"]) == ("qwen", "vllm")


def test_prometheus_scrapes_the_operator_once_it_is_told_where(control_plane: ControlPlane, metrics_port: int) -> None:
    control_plane.scrape_operator(f"127.0.0.1:{metrics_port}")
    eventually(lambda: control_plane.query('probe_value{job="plimsoll"}'))
    control_plane.scrape_operator(None)
    eventually(lambda: not control_plane.query('probe_value{job="plimsoll"}'))


def test_a_process_that_crashes_comes_back_with_its_data(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    kubectl.apply(config_map("remember", namespace))
    etcd = control_plane.processes["etcd"]
    killed = etcd.pid
    etcd.kill()
    eventually(lambda: etcd.pid not in {None, killed})
    eventually(control_plane.api.probe("/readyz"))
    assert kubectl.get("configmap", "remember", "-n", namespace)


def test_two_control_planes_live_side_by_side(kubectl: Kubectl, namespace: str) -> None:
    with ControlPlane(prometheus=False, log=quiet) as other:
        kubectl.apply(config_map("here", namespace))
        with pytest.raises(KubectlError, match="not found"):
            other.kubectl("get", "namespace", namespace)
        workdir = other.workdir
        assert mentioning(workdir)
    assert not workdir.exists()
    assert not mentioning(workdir)
    assert kubectl.get("configmap", "here", "-n", namespace)


def test_a_failed_start_names_the_process_its_last_words_and_its_log() -> None:
    plane = ControlPlane(extra_args={"kube-apiserver": ["--no-such-flag"]}, log=quiet)
    with pytest.raises(ProcessError) as failure:
        plane.start()
    message = str(failure.value)
    assert message.startswith("kube-apiserver ended with exit code 1 before it was ready")
    assert "unknown flag: --no-such-flag" in message
    kept = Path(message.splitlines()[0].split()[-1].rstrip(":"))
    assert "unknown flag: --no-such-flag" in kept.read_text()
    assert not plane.workdir.exists()
    assert not mentioning(plane.workdir)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_however_the_owner_ends_nothing_is_left(number: signal.Signals) -> None:
    owner = textwrap.dedent("""
        import signal, sys
        from e2e.controlplane import ControlPlane
        with ControlPlane(prometheus=False, log=lambda line: None) as plane:
            print(plane.workdir, flush=True)
            signal.pause()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", owner], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        workdir = Path(process.stdout.readline().strip())
        assert len(mentioning(workdir)) >= 4
        os.kill(process.pid, number)
    eventually(lambda: not workdir.exists())
    eventually(lambda: not mentioning(workdir))
    assert not list(marked_processes(workdir))
