"""Prometheus' configuration: what a PodMonitor of the product would select, through the real Kubernetes discovery."""

import json
from pathlib import Path
from typing import Any, Final

import yaml

JOB_VLLM: Final = "vllm"
JOB_OPERATOR: Final = "plimsoll"
_POD: Final = "__meta_kubernetes_pod"


def configuration(*, kubeconfig: Path, targets: Path, scrape_interval_seconds: float) -> str:
    """The YAML; `targets` is the file of `operator_targets`, which may appear later."""
    interval = f"{round(scrape_interval_seconds * 1000)}ms"
    return yaml.safe_dump(
        {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": interval,
            },
            "scrape_configs": [
                {
                    "job_name": JOB_VLLM,
                    "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": str(kubeconfig)}],
                    "relabel_configs": _pod_relabelling(),
                },
                {"job_name": JOB_OPERATOR, "file_sd_configs": [{"files": [str(targets)]}]},
            ],
        },
        sort_keys=False,
    )


def operator_targets(address: str | None) -> str:
    """The file-based discovery's JSON for the operator at `host:port`, or for none."""
    return json.dumps([{"targets": [address]}] if address else [])


def access(user: str) -> list[tuple[str, dict[str, Any]]]:
    """What the discovery may do, watch pods and no more, as (API path, object to create)."""
    group = "rbac.authorization.k8s.io"
    name = "plimsoll-lab-prometheus"
    role = {
        "kind": "ClusterRole",
        "apiVersion": f"{group}/v1",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
    }
    binding = {
        "kind": "ClusterRoleBinding",
        "apiVersion": f"{group}/v1",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    return [(f"/apis/{group}/v1/clusterroles", role), (f"/apis/{group}/v1/clusterrolebindings", binding)]


def _pod_relabelling() -> list[dict[str, Any]]:
    return [
        _keep(f"{_POD}_label_app_kubernetes_io_managed_by", pattern="plimsoll"),
        _keep(f"{_POD}_container_port_name", f"{_POD}_container_port_number", pattern="http;.*|.*;8000"),
        {"source_labels": [f"{_POD}_phase"], "regex": "Succeeded|Failed", "action": "drop"},
        _copy("__meta_kubernetes_namespace", "namespace"),
        _copy(f"{_POD}_name", "pod"),
        _copy(f"{_POD}_container_name", "container"),
        _copy(f"{_POD}_label_plimsoll_dev_service", "service"),
    ]


def _keep(*sources: str, pattern: str) -> dict[str, Any]:
    return {"source_labels": list(sources), "regex": pattern, "action": "keep"}


def _copy(source: str, label: str) -> dict[str, Any]:
    return {"source_labels": [source], "target_label": label}
