"""Record what an operator wrote for a few services: the fixture of the upgrade test (e2e/data/upgrade/README.md).

    git worktree add /tmp/old REVISION
    export PYTHONPATH=/tmp/old:/tmp/old/operator
    .venv/bin/python tools/record_upgrade.py REVISION e2e/data/upgrade/REVISION.json.gz

Run so, all that is imported is the old version's: lab, operator and CRD. Each write of the operator is noted as it is
sent, so that the test can make the very same ones again.
"""

import gzip
import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from e2e.eventually import eventually
from e2e.labrun import CHECKOUT, Lab, LabOptions
from plimsoll import __main__ as wiring
from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.ports import Kind, Object

H100: Final = "NVIDIA-H100-80GB-HBM3"
L40S: Final = "NVIDIA-L40S"
NAMESPACE: Final = "upgrade"
LOG: Final = "PLIMSOLL_RECORD"

QWEN: Final = {"model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True}, "hardware": {"gpu": H100}, "contextTokens": 131072}
SMALL: Final = {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": L40S}, "contextTokens": 16384}
LOAD: Final = {"concurrency": 24, "promptTokens": 6000, "outputTokens": 500, "sharedPrefixTokens": 2000}
SERVICES: Final[dict[str, list[dict[str, Any]]]] = {
    # One after the other: a later spec is a change of the service.
    "least": [QWEN],
    "loaded": [
        QWEN
        | {
            "load": LOAD,
            "slo": {"ttft": "2s", "itl": "50ms"},
            "scaling": {"minReplicas": 2, "maxReplicas": 4},
            "objective": "Latency",
        }
    ],
    "fixed": [SMALL | {"scaling": {"mode": "Fixed"}, "replicas": 2}],
    "external": [SMALL | {"scaling": {"mode": "External"}, "replicas": 1, "tuning": {"mode": "Off"}}],
    "parked": [SMALL | {"scaling": {"mode": "Fixed"}, "replicas": 0}],
    "several-gpus": [
        {
            "model": {"id": "Qwen/Qwen3-32B"},
            "hardware": {"gpus": [L40S, H100], "maxGPUs": 4},
            "contextTokens": 32768,
        }
    ],
    "arguments": [
        SMALL
        | {
            "engine": {
                "version": "0.30.0",
                "image": "registry.example.com/vllm/vllm-openai:v0.30.0",
                "extraArgs": ["--kv-cache-dtype=fp8", "--enable-auto-tool-choice", "--tool-call-parser=hermes"],
            }
        }
    ],
    "changed": [SMALL, SMALL | {"contextTokens": 24576}, SMALL | {"contextTokens": 32768}],
    "own-model": [SMALL | {"model": {"id": "Qwen/Qwen3-8B", "configRef": {"name": "nine"}}}],
    "infeasible": [QWEN | {"contextTokens": 300_000}],
}


def record(revision: str, target: Path) -> None:
    """Start a lab, apply the services, wait for them, write what the operator wrote."""
    log = target.with_suffix(".writes")
    log.unlink(missing_ok=True)
    options = LabOptions(
        nodes=f"2*{H100}:8,1*{L40S}:8",
        load_seconds=1.0,
        operator_command=[sys.executable, __file__, "operator"],
        operator_env={LOG: str(log.absolute()), "PYTHONPATH": os.environ["PYTHONPATH"]},
    )
    with Lab(options) as lab:
        kubectl = lab.plane.kubectl
        kubectl("create", "namespace", NAMESPACE)
        kubectl.apply(config := _config_map())

        def settled(name: str) -> bool:
            service = kubectl.get("vllm", name, "-n", NAMESPACE)
            found = {c["type"]: c for c in service.get("status", {}).get("conditions", ())}
            current = service.get("status", {}).get("observedGeneration") == service["metadata"]["generation"]
            return current and bool({found["Ready"]["status"], found["Stalled"]["status"]} & {"True"})

        for name, specs in SERVICES.items():
            for spec in specs:
                kubectl.apply(_service(name, spec))
                eventually(partial(settled, name), within_seconds=120)
        services = kubectl.get("vllm", "-n", NAMESPACE)["items"]
        schema = kubectl.get("crd", "vllmservices.plimsoll.dev")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        fields = sorted(_fields(schema["properties"]["spec"], ""))
    writes = [json.loads(line) for line in log.read_text().splitlines()]
    log.unlink()
    kept = {
        "revision": revision,
        "specFields": fields,
        "services": [_plain(service) for service in services],
        "others": [config],
        "writes": _last(writes),
    }
    target.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":"), sort_keys=True).encode(), mtime=0))
    print(f"{target}: {len(kept['writes'])} writes for {len(services)} services, {target.stat().st_size} bytes")


def _service(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "VLLMService", "metadata": meta, "spec": spec}


def _plain(service: dict[str, Any]) -> dict[str, Any]:
    """As the user applied it, its uid, by which its children name it, and its spec with the CRD's defaults."""
    meta = service["metadata"]
    name = meta["name"]
    return _service(name, SERVICES[name][-1]) | {"recordedUid": meta["uid"], "storedSpec": service["spec"]}


def _fields(schema: dict[str, Any], at: str) -> Iterator[str]:
    for name, child in (schema.get("properties") or {}).items():
        path = f"{at}.{name}" if at else name
        yield path
        yield from _fields(child, path)


def _config_map() -> dict[str, Any]:
    path = CHECKOUT / "operator" / "plimsoll" / "facts" / "catalogue" / "Qwen--Qwen3-8B.json"
    text = json.dumps(json.loads(path.read_text(encoding="utf-8"))["config"])
    meta = {"name": "nine", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"config.json": text}}


def _last(writes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last write of each manager to each object that was not deleted again, in the order of the first."""
    kept: dict[tuple[str, ...], dict[str, Any]] = {}
    for write in writes:
        if "deleted" in write:
            kind, name = write["deleted"]
            kept = {key: value for key, value in kept.items() if key[:2] != (kind, name)}
            continue
        manifest = write["manifest"]
        key = (manifest["kind"], manifest["metadata"]["name"], write["manager"], write["subresource"])
        kept[key] = write
    return list(kept.values())


def operator() -> int:
    """The operator of the checkout on the path, noting each write before it is sent."""
    apply, delete = KubeCluster.apply, KubeCluster.delete

    def note(what: dict[str, Any]) -> None:
        with Path(os.environ[LOG]).open("a", encoding="utf-8") as log:
            log.write(json.dumps(what) + "\n")

    async def noted_apply(self: KubeCluster, kind: Kind, manifest: Object, manager: str, **more: str | bool) -> Object:
        meta = {key: value for key, value in manifest["metadata"].items() if key != "resourceVersion"}
        sent = {"manifest": {**manifest, "metadata": meta}, "manager": manager}
        note({**sent, "subresource": more.get("subresource", "")})
        return await apply(self, kind, manifest, manager, **more)  # type: ignore[arg-type]

    async def noted_delete(self: KubeCluster, kind: Kind, namespace: str, name: str, uid: str, **more: str) -> None:
        note({"deleted": [kind.kind, name]})
        await delete(self, kind, namespace, name, uid, **more)

    KubeCluster.apply, KubeCluster.delete = noted_apply, noted_delete  # type: ignore[method-assign]
    return wiring.main()


if __name__ == "__main__":
    if sys.argv[1] == "operator":
        sys.exit(operator())
    record(sys.argv[1], Path(sys.argv[2]))
