"""The lab as people and outside tests use it, and the operator as a process in it. The operator here is a stand-in."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.controlplane import ProcessError
from e2e.controlplane.kubectl import Kubectl
from e2e.controlplane.scratch import marked_processes
from e2e.eventually import eventually
from e2e.labrun import CHECKOUT, Lab, LabOptions
from e2e.operator_process import Operator

pytestmark = pytest.mark.controlplane

MANIFEST = """
{apiVersion: v1, kind: ServiceAccount, metadata: {name: stand-in}}
"""
# Answers every request with its environment.
STAND_IN = """
import http.server, json, os
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(json.dumps(dict(os.environ)).encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PLIMSOLL_HTTP_PORT"])), Page).serve_forever()
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of two nodes whose operator does nothing but answer."""
    manifest = tmp_path_factory.mktemp("operator") / "operator.yaml"
    manifest.write_text(MANIFEST)
    options = LabOptions(
        nodes="2*NVIDIA-L40S:4", operator_command=[sys.executable, "-c", STAND_IN], operator_manifest=manifest
    )
    with Lab(options, log=lambda _: None) as lab:
        yield lab


@pytest.fixture
def operator(lab: Lab) -> Operator:
    assert lab.operator
    return lab.operator


def environment(operator: Operator) -> dict[str, str]:
    with urllib.request.urlopen(f"{operator.url}/") as answer:
        told: dict[str, str] = json.load(answer)
    return told


def test_the_nodes_have_their_gpus(lab: Lab) -> None:
    nodes = lab.plane.kubectl.get("nodes")["items"]
    assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes] == ["4", "4"]


def test_the_operator_is_its_service_account_and_no_admin(lab: Lab, operator: Operator) -> None:
    admin = lab.plane.kubectl
    account = Kubectl(admin.program, Path(environment(operator)["KUBECONFIG"]), admin.cache)
    assert "system:serviceaccount:plimsoll-system:stand-in" in account("auth", "whoami")
    assert environment(operator)["PLIMSOLL_PROMETHEUS_URL"] == lab.plane.prometheus_url


def test_a_killed_operator_comes_back_as_another_process(operator: Operator) -> None:
    before = operator.process.pid
    operator.kill()
    eventually(lambda: operator.process.pid not in {None, before})
    operator.await_ready()


def test_a_stopped_operator_stays_down_until_started(operator: Operator) -> None:
    operator.kill(comes_back=False)
    assert operator.process.pid is None
    assert not operator.process.supervised
    operator.start()
    assert environment(operator)


def test_an_operator_that_cannot_start_says_why(lab: Lab) -> None:
    broken = Operator(
        lab.plane, lab.options.operator_manifest, command=[sys.executable, "-c", "raise SystemExit('no such model')"]
    )
    with pytest.raises(ProcessError, match=r"operator ended with exit code 1(.|\n)*operator\.log(.|\n)*no such model"):
        broken.start()


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A checkout of its own, so that the lab somebody runs in this one is left alone."""
    for name in ("e2e", "crds"):
        (tmp_path / name).symlink_to(CHECKOUT / name)
    yield tmp_path
    run(tmp_path, "down")


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "e2e.lab", *arguments],
        cwd=checkout,
        env={**os.environ, "OPERATOR": "0", "NODES": "2*NVIDIA-L40S:4"},
        capture_output=True,
        text=True,
        check=False,
    )


def nothing_left(checkout: Path) -> bool:
    return not (checkout / ".lab").exists() and not list(marked_processes(checkout / ".lab"))


def test_up_use_and_down(checkout: Path) -> None:
    assert run(checkout, "up").returncode == 0
    shell = f". {checkout}/.lab/env && kubectl get nodes -o name && test -n $PROMETHEUS_URL"
    used = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert used.stdout.split() == ["node/l40s-0", "node/l40s-1"]
    again = run(checkout, "up")
    assert (again.returncode, "runs here already" in again.stdout) == (0, True)
    assert "kube-apiserver" in run(checkout, "status").stdout
    assert run(checkout, "down").stdout == "lab stopped\n"
    assert nothing_left(checkout)
    assert run(checkout, "status").returncode == 1


def test_down_has_nothing_to_do_after_the_supervisor_was_killed(checkout: Path) -> None:
    assert run(checkout, "up").returncode == 0
    os.kill(json.loads((checkout / ".lab" / "state.json").read_text())["supervisor"], signal.SIGKILL)
    eventually(lambda: nothing_left(checkout))
    down = run(checkout, "down")
    assert (down.returncode, down.stdout) == (0, "no lab runs here\n")


def test_ctrl_c_while_it_starts_leaves_nothing(checkout: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "e2e.lab", "up", "--no-operator"], cwd=checkout, stdout=subprocess.PIPE, text=True
    ) as starting:
        eventually(lambda: list(marked_processes(checkout / ".lab")))
        starting.send_signal(signal.SIGINT)
        output = starting.communicate()[0]
    assert (starting.returncode, "nothing is left" in output) == (130, True)
    assert nothing_left(checkout)


def test_a_start_that_fails_says_why_and_leaves_nothing(checkout: Path) -> None:
    failed = run(checkout, "up", "--nodes", "four H100")
    assert (failed.returncode, "'four H100' is not COUNT*PRODUCT:GPUS" in failed.stdout) == (1, True)
    assert nothing_left(checkout)
