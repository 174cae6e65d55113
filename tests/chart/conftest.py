"""Helm and kubectl from the cache of `e2e/controlplane`; nothing here needs a cluster."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.controlplane import binaries
from e2e.controlplane.targets import HELM
from tools.kustomize import CHART, NAMESPACE, run

VALUES = Path(__file__).parent / "values"

Object = dict[str, Any]
Render = Callable[..., list[Object]]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what is missing before the first test: minutes once, which no test's timeout should have to hold."""
    if session.config.option.collectonly or not any({"helm", "kubectl"} & set(_fixtures(i)) for i in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        binaries.ensure_group(HELM)
        binaries.ensure()


def _fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def helm() -> Path:
    return binaries.ensure_group(HELM) / "helm"


@pytest.fixture(scope="session")
def kubectl() -> Path:
    return binaries.ensure().kubectl


@pytest.fixture(scope="session")
def render(helm: Path) -> Render:
    """The objects of a release `plimsoll`: `render("two-replicas", "--set=…")`."""

    @cache
    def rendered(values: str, *arguments: str) -> list[Object]:
        place = f"--namespace={NAMESPACE}"
        text = run(helm, "template", "plimsoll", str(CHART), place, f"--values={VALUES / values}.yaml", *arguments)
        return [document for document in yaml.safe_load_all(text) if document]

    return lambda values="default", *arguments: deepcopy(rendered(values, *arguments))


def one(objects: list[Object], kind: str, name: str = "") -> Object:
    """The only object of this kind (and name); an error that lists what there is otherwise."""
    found = [o for o in objects if o["kind"] == kind and name in ("", o["metadata"]["name"])]
    assert len(found) == 1, [(o["kind"], o["metadata"]["name"]) for o in objects]
    return found[0]
