"""Our CRDs in a control plane, served from then on."""

from pathlib import Path

from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.eventually import eventually


def install_crds(kubectl: Kubectl, folder: Path) -> None:
    """Apply every CRD of the folder and return when the API server serves them."""
    files = [f"--filename={path}" for path in sorted(folder.glob("*.yaml"))]
    kubectl("apply", "--server-side", *files)

    def established() -> bool:
        # Right after its creation a CRD has no conditions at all, which `kubectl wait` takes for an error.
        try:
            kubectl("wait", "--for=condition=Established", "--timeout=5s", *files)
        except KubectlError:
            return False
        return True

    eventually(established)
