"""A server as a VLLMService, held until somebody lets it act."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.api import names
from plimsoll.core.adopt.arguments import Left, context_of, extra_arguments
from plimsoll.core.adopt.pod import model_of, template_of
from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.workloads.server import Server
from plimsoll.core.workloads.tree import at, text, whole
from plimsoll.facts.engines import NEWEST, EngineVersion

LONGEST_NAME: Final = 50
_OFFICIAL: Final = "vllm/vllm-openai"


@dataclass(frozen=True)
class Adopted:
    """The service that would replace a server, and what it does not say; no ``manifest`` where none can be written."""

    server: Server
    manifest: dict[str, Any] | None
    left: tuple[Left, ...]
    problem: str = ""


def adopt(evidence: Evidence, model_limit: int | None, suffix: str) -> Adopted:
    """The VLLMService of a server; ``model_limit`` is the longest request of the model's own configuration."""
    server = evidence.server
    problem = _problem(evidence)
    if problem:
        return Adopted(server, None, (), problem)
    tokens, word = context_of(evidence, model_limit)
    if tokens is None:
        unknown = f"no --max-model-len, and no configuration of {server.model} at hand; --model-config or --hub"
        return Adopted(server, None, (), unknown)
    version, notes = _release(evidence)
    model, from_model = model_of(evidence)
    arguments, from_arguments = extra_arguments(evidence, version)
    template, from_pod = template_of(server)
    left = [*notes, *from_model, *from_arguments, *from_pod, *_idle(server), *_scaled(server), *_around(server)]
    if word:
        left.append(Left("contextTokens", f"{word}; ask for what you need"))
    spec = {
        "model": model,
        "hardware": {"gpu": server.product, "maxGPUs": _most_gpus(server)},
        "contextTokens": tokens,
        "scaling": {"mode": "External" if server.scalers else "Fixed"},
        "replicas": server.replicas if server.replicas is not None else 1,
        "engine": {"version": str(version), **_image(server, version), "extraArgs": arguments},
        **({"rollout": {"noSpareGPU": "Recreate"}} if _recreates(server) else {}),
        **({"podTemplate": template} if template else {}),
    }
    if server.scalers:
        del spec["replicas"]
    return Adopted(server, _manifest(server, spec, suffix), tuple(left))


def _manifest(server: Server, spec: dict[str, Any], suffix: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": service_name(server.name, suffix)}
    if server.namespace:
        metadata["namespace"] = server.namespace
    metadata["annotations"] = {names.ANNOTATION_HOLD: "true"}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}


def service_name(name: str, suffix: str) -> str:
    """A DNS-1035 label of at most 50 characters; the suffix keeps children apart from those of the old workload."""
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "vllm"
    plain = plain if plain[0].isalpha() else f"v-{plain}"
    return plain[: LONGEST_NAME - len(suffix)].rstrip("-") + suffix


def _problem(evidence: Evidence) -> str:
    server = evidence.server
    if not server.argv_known:
        return f"the command line is not known: {server.launch.why_unknown}"
    if not server.model_known:
        return "the model is not known" + (f": {server.model}" if server.model else "")
    if server.on_cpu or server.other_device:
        return f"it runs on {server.other_device or 'CPUs'}: Plimsoll plans NVIDIA GPUs"
    if server.candidate.nodes > 1:
        return f"one engine over {server.candidate.nodes} nodes: write the service by hand (docs/optional-kinds.md)"
    if server.product is None:
        return "no GPU product is named: --gpu"
    return ""


def _release(evidence: Evidence) -> tuple[EngineVersion, list[Left]]:
    if evidence.version is not None:
        return evidence.version, []
    server, newest = evidence.server, EngineVersion.parse(NEWEST)
    if server.release_text is None:
        image = server.image.text if server.image else "no image"
        return newest, [Left(f"the engine's release ({image})", f"not known: taken for {NEWEST}")]
    return newest, [Left(f"vLLM {server.release_text}", f"Plimsoll knows 0.10 and later: {NEWEST} is taken")]


def _image(server: Server, version: EngineVersion) -> dict[str, str]:
    """The image where it is not the one that the operator would take."""
    image = server.image
    if image is None or image.release is None or image.is_template or str(version) != ".".join(map(str, image.release)):
        return {}
    usual = image.name.removeprefix("docker.io/") == _OFFICIAL and image.tag == f"v{version}" and not image.digest
    return {} if usual else {"image": image.text}


def _recreates(server: Server) -> bool:
    return text(server.manifest, "spec", "strategy", "type") == "Recreate"


def _most_gpus(server: Server) -> int:
    """Those of all replicas, and of one more where the old one makes room for a surge."""
    replicas = max(
        [server.replicas or 1, *(whole(at(each.body, "spec", "maxReplicas")) or 1 for each in server.scalers)]
    )
    surge = 0 if _recreates(server) else 1
    return server.ranks * (max(1, replicas) + surge)


def _idle(server: Server) -> Sequence[Left]:
    if server.gpus is None or server.gpus <= server.ranks:
        return []
    return [Left(f"{server.gpus} GPUs a pod", f"the engine uses {server.ranks}: that many are asked for")]


def _scaled(server: Server) -> Sequence[Left]:
    return [
        Left(str(each), f"let it target the VLLMService (apiVersion {names.API_VERSION}) once the old workload is gone")
        for each in server.scalers
    ]


def _around(server: Server) -> Sequence[Left]:
    """What leads to the old pods."""
    return [
        Left(str(each), f"select {names.LABEL_SERVICE} of the new pods when you take over (docs/adoption.md)")
        for each in server.services
    ]
