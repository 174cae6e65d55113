"""One cluster a session with the operator installed by Helm; namespaces that enforce restricted Pod Security."""

import json
import secrets
from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest

from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.eventually import eventually
from e2e.node import rig as rigs
from e2e.node.rig import Rig
from e2e.node.suite.page import follow
from e2e.node.suite.services import SYSTEM, Services

SHOWN_OF_A_FAILURE = (
    ("get", "vllmservices,deployments,pods", "-A", "-o", "wide"),
    ("get", "events", "-A", "--sort-by=.lastTimestamp"),
    ("logs", "deployment/plimsoll", "-n", SYSTEM, "--tail=40"),
)
ENGINE_LOGS = ("logs", "-l", "app.kubernetes.io/name=vllm", "--tail=20", "--prefix")


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    with rigs.chosen() as rig:
        yield rig


@pytest.fixture(scope="session")
def kubectl(rig: Rig) -> Kubectl:
    return rig.kubectl


@pytest.fixture(scope="session")
def operator(rig: Rig) -> None:
    """Installed as docs/install.md says, in a namespace that enforces restricted Pod Security; returns when Ready."""
    follow(rig, "With Helm")


@pytest.fixture(scope="module")
def services(kubectl: Kubectl, operator: None) -> Iterator[Services]:  # noqa: ARG001 - it has to run
    """A namespace of the module's own for VLLMServices."""
    name = f"test-{secrets.token_hex(4)}"
    create_namespace(kubectl, name, "restricted")
    yield Services(kubectl, name)
    kubectl("delete", "namespace", name, "--wait=false")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What removes the operator comes last."""
    items.sort(key=lambda item: "test_install_page" in item.nodeid)


def create_namespace(kubectl: Kubectl, name: str, level: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    eventually(lambda: kubectl("get", "serviceaccount", "default", "-n", name, "--ignore-not-found"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the cluster looked like goes with a failure; the cluster itself is gone when it is read."""
    report = yield
    asked_for = getattr(item, "funcargs", {})
    if report.failed and "rig" in asked_for:
        engines = [(*ENGINE_LOGS, "-n", asked_for["services"].namespace)] if "services" in asked_for else []
        for arguments in (*SHOWN_OF_A_FAILURE, *engines):
            with suppress(KubectlError):
                report.sections.append((f"kubectl {' '.join(arguments)}", asked_for["rig"].kubectl(*arguments)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The measured figures, a line of JSON each."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "figure" and report.when == "call":
                    terminalreporter.write_line(json.dumps(value))
