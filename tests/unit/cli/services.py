"""Service manifests for the tests of the command line."""

from typing import Any

import yaml

H100 = "NVIDIA-H100-80GB-HBM3"


def service(name: str = "docs", **spec: Any) -> dict[str, Any]:
    """A service that one H100 serves; ``spec`` replaces or adds fields."""
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "VLLMService",
        "metadata": {"name": name, "namespace": "llm"},
        "spec": {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": H100}, "contextTokens": 32768, **spec},
    }


def written(*manifests: dict[str, Any]) -> str:
    """The manifests as YAML documents."""
    return yaml.safe_dump_all(manifests, sort_keys=False)
