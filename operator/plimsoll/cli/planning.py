"""From documents to plans: what ``plan`` and ``diff`` do before they print."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from plimsoll.api import reasons
from plimsoll.api.parse import parse_service
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.cli.documents import ConfigMap, Document, VolumeClaim, read_documents
from plimsoll.cli.hub import HubError, hub_config
from plimsoll.cli.output import BAD_INPUT, complain
from plimsoll.cli.sources import Bad
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.claims import claim_names
from plimsoll.core.plan.configmaps import UnreadableError, files_of, referenced
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Plan, Refusal, to_json
from plimsoll.core.podtemplate.gate import gate_refusals
from plimsoll.core.policy import Allowed
from plimsoll.core.request import minimum_replicas

_NOTHING_KNOWN: Final = Inventory()

ModelConfigOption = Annotated[
    Path | None,
    typer.Option(help="A config.json to use in place of the catalogue's; hf_quant_config.json beside it is read."),
]
ConfigMaps = Mapping[tuple[str, str], ConfigMap]


@dataclass(frozen=True)
class Planned:
    """One service and what the planner answered."""

    namespace: str
    name: str
    manifest: Mapping[str, Any]
    spec: VLLMServiceSpec
    config: ModelConfig | None
    outcome: Plan | Refusal
    elapsed_ms: float
    unreachable: bool = False
    """Whether the hub was asked and could not be reached."""
    notes: tuple[str, ...] = ()
    """What the operator would not do with the service, beside the plan."""

    @property
    def full_name(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def result(self) -> dict[str, Any]:
        """The contract's JSON."""
        found = describe(self.full_name, self.spec.model.id, self.outcome, self.elapsed_ms)
        return {**found, "assumptions": [*found["assumptions"], *self.notes]}


@dataclass(frozen=True)
class Batch:
    """Everything that some files hold."""

    planned: Sequence[Planned]
    bad: Sequence[Bad]

    @property
    def empty(self) -> bool:
        """Whether there was neither a service nor something unreadable."""
        return not self.planned and not self.bad


@dataclass(frozen=True)
class Sources:
    """Where model configurations may come from. ``given`` replaces all others; the hub is asked last, if at all."""

    given: ModelConfig | None
    config_maps: ConfigMaps
    hub: bool
    claims: Mapping[tuple[str, str], tuple[str, ...]]
    """Access modes of the PersistentVolumeClaims among the files."""


def plan_files(
    files: Iterable[str],
    given: ModelConfig | None = None,
    inventory: Inventory = _NOTHING_KNOWN,
    *,
    hub: bool = False,
) -> Batch:
    """Plan every service of the files and folders; ``given`` replaces the catalogue's configuration."""
    found = list(read_documents(files))
    config_maps = {(f.namespace, f.name): f for f in found if isinstance(f, ConfigMap)}
    claims = {(f.namespace, f.name): f.access_modes for f in found if isinstance(f, VolumeClaim)}
    sources = Sources(given, config_maps, hub, claims)
    planned = [_planned(f, sources, inventory) for f in found if isinstance(f, Document)]
    return Batch(planned, [f for f in found if isinstance(f, Bad)])


def given_config(path: Path | None) -> ModelConfig | None:
    """The configuration that ``--model-config`` names; ends the command with exit code 2 when it cannot be used."""
    if path is None:
        return None
    beside = path.with_name("hf_quant_config.json")
    quant = _json_file(beside) if beside != path and beside.exists() else None
    return ModelConfig(_json_file(path), quant, str(path))


def _json_file(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise _unusable(path, f"a JSON {type(value).__name__}, not the object of a config.json")
    return value


def _unusable(path: Path, why: str) -> typer.Exit:
    complain(f"--model-config: {path}: {why}")
    return typer.Exit(BAD_INPUT)


def plan_manifest(
    manifest: Mapping[str, Any],
    given: ModelConfig | None,
    claims: Mapping[tuple[str, str], tuple[str, ...]],
    inventory: Inventory = _NOTHING_KNOWN,
    *,
    hub: bool = False,
) -> Planned:
    """Plan one service that no file holds."""
    return _planned(Document("", manifest), Sources(given, {}, hub, claims), inventory)


def _planned(document: Document, sources: Sources, inventory: Inventory) -> Planned:
    service = parse_service(document.manifest)
    namespace, spec = service.metadata.namespace or "default", service.spec
    started = time.perf_counter()
    config: ModelConfig | None = None
    outcome: Plan | Refusal
    unreachable = False
    try:
        config = sources.given or _config(spec, namespace, sources)
        named = {name: sources.claims.get((namespace, name)) for name in claim_names(spec)}
        known = replace(inventory, claims={name: modes for name, modes in named.items() if modes})
        outcome = plan_service(spec, minimum_replicas(spec), config, known)
    except UnreadableError as error:
        outcome = Refusal(reasons.CATALOGUE_UNREADABLE.name, str(error))
    except HubError as error:
        outcome, unreachable = Refusal(reasons.UNKNOWN_MODEL.name, f"spec.model.id: {error}"), error.unreachable
    elapsed_ms = round((time.perf_counter() - started) * 1000, 2)
    notes = tuple(_about_the_gate(spec, inventory.policy.allow))
    return Planned(
        namespace, service.metadata.name, document.manifest, spec, config, outcome, elapsed_ms, unreachable, notes
    )


def _about_the_gate(spec: VLLMServiceSpec, allowed: Allowed) -> Iterator[str]:
    """A quality gate that may not run holds up no plan, so nobody would hear of it before an experiment is due."""
    if refused := gate_refusals(spec, allowed):
        yield f"tuning: fp8 KV is never tried, since its quality gate may not run: {'; '.join(refused)}"


def _config(spec: VLLMServiceSpec, namespace: str, sources: Sources) -> ModelConfig | None:
    """What the operator would read, as far as the files show it; the hub's own when asked and nothing else is known."""
    ref = spec.model.config_ref
    if ref is None:
        return bundled_config(spec.model.id) or (hub_config(spec.model.id) if sources.hub else None)
    where, found = f"ConfigMap {namespace}/{ref.name}", sources.config_maps.get((namespace, ref.name))
    if found is None:
        raise UnreadableError(f"spec.model.configRef.name: {where} is not among the files; add it, or --model-config")
    return referenced(files_of(found.data, where), ref, where)


def describe(name: str, model: str, outcome: Plan | Refusal, elapsed_ms: float) -> dict[str, Any]:
    """The contract's JSON of one planned service."""
    head = {"service": name, "model": model, "feasible": isinstance(outcome, Plan), "planningMs": elapsed_ms}
    if isinstance(outcome, Plan):
        return {**head, **to_json(outcome), "nearest": []}
    return {**head, **to_json(outcome), "assumptions": []}
