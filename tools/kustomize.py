"""Write ``deploy/kustomize`` from the chart, so that there is one source of what an install consists of.

``make kustomize``; the tests compare the files with what the chart renders, and what ``kubectl kustomize`` builds
from them with the chart under the same values.
"""

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from e2e.controlplane import binaries
from e2e.controlplane.targets import HELM

ROOT: Final = Path(__file__).resolve().parent.parent
CHART: Final = ROOT / "charts" / "plimsoll"
FOLDER: Final = ROOT / "deploy" / "kustomize"
NAMESPACE: Final = "plimsoll-system"
EXAMPLE_NAMESPACES: Final = ("team-a", "team-b")
HEAD: Final = "# Rendered from charts/plimsoll by `make kustomize`; do not edit.\n"
_HELMS_OWN: Final = re.compile(r"^\s+(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE)


def rendered(helm: Path) -> dict[Path, str]:
    """Every file that comes from the chart, by its path."""
    base = {
        FOLDER / "base" / f"{name}.yaml": HEAD + "---\n".join(documents(helm, name))
        for name in ("rbac", "user-roles", "tenant-policy", "deployment", "metrics")
    }
    namespaced = documents(helm, "rbac", f"--set=namespaces={{{','.join(EXAMPLE_NAMESPACES)}}}")
    roles = [text for text in namespaced if any(f"\n  namespace: {name}\n" in text for name in EXAMPLE_NAMESPACES)]
    (budget,) = (text for text in documents(helm, "deployment", "--set=replicas=2") if "kind: PodDisruption" in text)
    overlays = FOLDER / "overlays"
    return {
        **base,
        overlays / "namespaced" / "roles.yaml": HEAD + "---\n".join(roles),
        overlays / "ha" / "pdb.yaml": HEAD + budget,
    }


def documents(helm: Path, template: str, *arguments: str) -> list[str]:
    """One template's documents for a release ``plimsoll``, without what only Helm needs."""
    shown = f"--show-only=templates/{template}.yaml"
    text = run(helm, "template", "plimsoll", str(CHART), f"--namespace={NAMESPACE}", shown, *arguments)
    return list(_clean(text.split("\n---\n")))


def run(helm: Path, *arguments: str) -> str:
    """Helm's stdout; RuntimeError with its stderr when it fails."""
    done = subprocess.run([str(helm), *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"helm {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _clean(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        lines = [line for line in text.splitlines() if line.strip() not in {"---", ""} and "# Source: " not in line]
        if lines:
            yield _HELMS_OWN.sub("", "\n".join(lines) + "\n")


def main() -> None:
    """Write them all."""
    helm = binaries.ensure_group(HELM) / "helm"
    for path, text in rendered(helm).items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
