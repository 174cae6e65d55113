"""deploy/kustomize is the chart, rendered: file by file, and as what kubectl builds from it."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.chart.conftest import Object, Render
from tools import kustomize

HELMS_OWN = {"helm.sh/chart", "app.kubernetes.io/managed-by"}


def test_the_files_are_what_the_chart_renders(helm: Path) -> None:
    for path, text in kustomize.rendered(helm).items():
        assert path.read_text() == text, f"{path} is not current: make kustomize"


@pytest.mark.parametrize(
    ("overlay", "arguments"),
    [
        ("base", []),
        ("overlays/ha", ["--set=replicas=2"]),
        ("overlays/namespaced", ["--set=namespaces={team-a,team-b}"]),
    ],
)
def test_what_kubectl_builds_is_what_helm_renders(
    kubectl: Path, render: Render, overlay: str, arguments: list[str]
) -> None:
    command = [str(kubectl), "kustomize", str(kustomize.FOLDER / overlay)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    built = {address(o): plain(o) for o in yaml.safe_load_all(text)}
    namespace = built.pop("Namespace None plimsoll-system")
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    assert built == {address(o): plain(o) for o in render("default", *arguments)}


def address(found: Object) -> str:
    meta = found["metadata"]
    return f"{found['kind']} {meta.get('namespace')} {meta['name']}"


def plain(found: Object) -> Object:
    """Without what only Helm needs, and with variables in one order."""
    meta = dict(found["metadata"])
    meta["labels"] = {key: value for key, value in meta["labels"].items() if key not in HELMS_OWN}
    meta["annotations"] = {k: v for k, v in meta.get("annotations", {}).items() if k != "helm.sh/resource-policy"}
    if found["kind"] == "Deployment":
        (container,) = found["spec"]["template"]["spec"]["containers"]
        container["env"].sort(key=lambda entry: str(entry["name"]))
    return {**found, "metadata": meta}
