"""A real control plane for the tests that ask for one: started once a session, a fresh namespace a test."""

import secrets
import signal
from collections.abc import Iterator
from typing import Final

import pytest

from e2e.controlplane import ControlPlane, binaries
from e2e.controlplane.kubectl import Kubectl
from e2e.controlplane.targets import LEADER_WORKER_SET
from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from e2e.look import Apply, Look, applier

# Shorter than Kubernetes' own 50 s for tests of a lost node; two heartbeats of a fake node (10 s each) have to fit.
NODE_MONITOR_GRACE_SECONDS = 25


LONGEST_FIRST: Final = (
    "test_scaling",
    "test_experiments",
    "test_operator",
    "test_metrics",
    "test_rollouts",
    "test_refusals",
)
"""Minutes each; a file is one worker's."""

# A runner in the background ignores Ctrl-C, and so would every process a test starts and then interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test against real processes gets a second try, and the summary names it: docs/adr/0040.

    They come first, the longest files before all: their waiting goes beside what computes, not after it.
    """
    for item in items:
        if _needs_control_plane(item):
            item.add_marker(pytest.mark.flaky(reruns=1))
    items.sort(key=_when)


def _when(item: pytest.Item) -> int:
    if not _needs_control_plane(item):
        return len(LONGEST_FIRST) + 1
    return LONGEST_FIRST.index(item.path.stem) if item.path.stem in LONGEST_FIRST else len(LONGEST_FIRST)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why a first try failed: the second hides it otherwise."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.line(report.longreprtext)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the first test: minutes once, which no test's timeout should have to hold."""
    if session.config.option.collectonly or not any(_needs_control_plane(item) for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        binaries.ensure()
        if any("sets" in getattr(item, "fixturenames", ()) for item in session.items):
            binaries.ensure_group(LEADER_WORKER_SET)


def _needs_control_plane(item: pytest.Item) -> bool:
    asked_for = {"control_plane", "lab"} & set(getattr(item, "fixturenames", ()))
    return bool(asked_for) or item.get_closest_marker("controlplane") is not None


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """etcd, Kubernetes and Prometheus, shared by the session."""
    with ControlPlane(node_monitor_grace_seconds=NODE_MONITOR_GRACE_SECONDS) as plane:
        yield plane


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A control plane of its own with GPU nodes, fake engines that load in a second, and the operator."""
    with Lab(LabOptions(load_seconds=1.0)) as lab:
        yield lab


@pytest.fixture(scope="session")
def kubectl(control_plane: ControlPlane) -> Kubectl:
    """The built kubectl as admin: `kubectl("get", "pods")` returns stdout, raises with stderr."""
    return control_plane.kubectl


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace nobody used before, in which pods can be made; its deletion is not waited for."""
    name = f"test-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    eventually(lambda: kubectl("get", "serviceaccount", "default", "-n", name, "--ignore-not-found"))
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def look(lab: Lab, namespace: str) -> Look:
    """Questions about the test's own namespace, in the lab of its file."""
    return Look(lab, namespace)


@pytest.fixture
def apply(kubectl: Kubectl, namespace: str) -> Apply:
    """Makes VLLMServices in the test's own namespace."""
    return applier(kubectl, namespace)
