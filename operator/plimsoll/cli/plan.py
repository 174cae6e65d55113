"""``plimsoll plan``: what the operator would do with a VLLMService, without a cluster."""

import json
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from plimsoll.api import reasons
from plimsoll.api.parse import parse_service
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.cli.documents import Bad, ConfigMap, Document, read_documents
from plimsoll.cli.plan_table import print_plans
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.configmaps import UnreadableError, files_of, referenced
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Plan, Refusal, to_json
from plimsoll.core.request import minimum_replicas

DONE: Final = 0
NO: Final = 1
BAD_INPUT: Final = 2


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def plan(
    files: Annotated[list[str], typer.Argument(help="VLLMService YAML or JSON: files, folders, or - for stdin.")],
    model_config: Annotated[
        Path | None,
        typer.Option(help="A config.json to use in place of the catalogue's; hf_quant_config.json beside it is read."),
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")] = Output.TABLE,
) -> None:
    """Plan services: GPUs, parallelism and flags with the arithmetic, or why it cannot be and what would fit.

    Exit code 0: all feasible. 1: at least one is not. 2: at least one document could not be read.
    """
    given = _given_config(model_config)
    found = list(read_documents(files))
    bad = [f for f in found if isinstance(f, Bad)]
    for each in bad:
        typer.echo(each.message, err=True)
    config_maps = {(f.namespace, f.name): f for f in found if isinstance(f, ConfigMap)}
    results = [_planned(f, given, config_maps) for f in found if isinstance(f, Document)]
    if not results and not bad:
        typer.echo(f"no VLLMService in {', '.join(files)}", err=True)
        raise typer.Exit(BAD_INPUT)
    _print(results, output)
    if bad:
        raise typer.Exit(BAD_INPUT)
    raise typer.Exit(DONE if all(r["feasible"] for r in results) else NO)


def _given_config(path: Path | None) -> ModelConfig | None:
    if path is None:
        return None
    beside = path.with_name("hf_quant_config.json")
    quant = _json_file(beside) if beside != path and beside.exists() else None
    return ModelConfig(_json_file(path), quant, str(path))


def _json_file(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        typer.echo(f"--model-config: {path}: {error.strerror or error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    except (ValueError, RecursionError) as error:
        typer.echo(f"--model-config: {path}: not JSON ({error})", err=True)
        raise typer.Exit(BAD_INPUT) from None
    if not isinstance(value, dict):
        typer.echo(f"--model-config: {path}: a JSON {type(value).__name__}, not the object of a config.json", err=True)
        raise typer.Exit(BAD_INPUT)
    return value


ConfigMaps = Mapping[tuple[str, str], ConfigMap]


def _planned(document: Document, given: ModelConfig | None, config_maps: ConfigMaps) -> dict[str, Any]:
    service = parse_service(document.manifest)
    namespace = service.metadata.namespace or "default"
    started = time.perf_counter()
    outcome: Plan | Refusal
    try:
        config = given or _config(service.spec, namespace, config_maps)
        outcome = plan_service(service.spec, minimum_replicas(service.spec), config)
    except UnreadableError as error:
        outcome = Refusal(reasons.CATALOGUE_UNREADABLE.name, str(error))
    elapsed_ms = round((time.perf_counter() - started) * 1000, 2)
    return describe(f"{namespace}/{service.metadata.name}", service.spec.model.id, outcome, elapsed_ms)


def _config(spec: VLLMServiceSpec, namespace: str, config_maps: ConfigMaps) -> ModelConfig | None:
    """What the operator would read, as far as the files show it."""
    ref = spec.model.config_ref
    if ref is None:
        return bundled_config(spec.model.id)
    where, found = f"ConfigMap {namespace}/{ref.name}", config_maps.get((namespace, ref.name))
    if found is None:
        raise UnreadableError(f"spec.model.configRef.name: {where} is not among the files; add it, or --model-config")
    return referenced(files_of(found.data, where), ref, where)


def describe(name: str, model: str, outcome: Plan | Refusal, elapsed_ms: float) -> dict[str, Any]:
    """The contract's JSON of one planned service."""
    head = {"service": name, "model": model, "feasible": isinstance(outcome, Plan), "planningMs": elapsed_ms}
    if isinstance(outcome, Plan):
        return {**head, **to_json(outcome), "nearest": []}
    return {**head, **to_json(outcome), "assumptions": []}


def _print(results: list[dict[str, Any]], output: Output) -> None:
    if output is Output.TABLE:
        print_plans(results)
    elif results:
        value = results[0] if len(results) == 1 else results
        typer.echo(json.dumps(value, indent=2) if output is Output.JSON else yaml.safe_dump(value, sort_keys=False))
