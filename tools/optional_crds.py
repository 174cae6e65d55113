"""Copy the CRDs of the optional kinds out of the Go modules that define them into ``e2e/optional/crds``.

Run it to take another version: ``.venv/bin/python tools/optional_crds.py`` (needs Go and its module proxy).
Descriptions are left out: of the LeaderWorkerSet CRD they are two thirds, and no object is judged by them.
"""

import gzip
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).resolve().parent.parent / "e2e" / "optional" / "crds"
MODULES: Final = {
    "leaderworkersets": (
        "sigs.k8s.io/lws@v0.9.0",
        "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    ),
    "podmonitors": (
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
    ),
    "inferencepools": (
        "sigs.k8s.io/gateway-api-inference-extension@v1.5.0",
        "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml",
    ),
}


def main() -> None:
    """Write one compressed JSON file a CRD."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (module, path) in MODULES.items():
        crd = yaml.safe_load((_folder(module) / path).read_text(encoding="utf-8"))
        text = json.dumps(_without_descriptions(crd), separators=(",", ":"))
        (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"wrote {name}.json.gz from {module}")


def _folder(module: str) -> Path:
    done = subprocess.run(
        ["go", "mod", "download", "-json", module], cwd="/", capture_output=True, text=True, check=True
    )
    return Path(json.loads(done.stdout)["Dir"])


def _without_descriptions(node: Any, *, names: bool = False) -> Any:  # noqa: ANN401 - JSON
    """Without documentation; a property may be called ``description`` itself (``names``: the keys are names)."""
    if isinstance(node, Mapping):
        kept = {key: value for key, value in node.items() if names or not _is_text(key, value)}
        return {
            key: _without_descriptions(value, names=key == "properties" and not names) for key, value in kept.items()
        }
    return [_without_descriptions(item) for item in node] if isinstance(node, list) else node


def _is_text(key: str, value: object) -> bool:
    return key == "description" and isinstance(value, str)


if __name__ == "__main__":
    main()
