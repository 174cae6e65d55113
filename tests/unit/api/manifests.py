"""Manifests to start from: a valid one, and changes of it by dotted path."""

from typing import Any


def service(**changes: Any) -> dict[str, Any]:
    """A small valid VLLMService; ``spec__hardware__gpu=...`` sets that field, None removes it."""
    manifest: dict[str, Any] = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "VLLMService",
        "metadata": {"name": "qwen-docs", "namespace": "llm"},
        "spec": {
            "model": {"id": "Qwen/Qwen3.5-9B"},
            "hardware": {"gpu": "NVIDIA-H100-80GB-HBM3"},
            "contextTokens": 131_072,
        },
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = manifest
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value
    return manifest
