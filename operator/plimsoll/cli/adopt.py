"""``plimsoll import``: the VLLMService that equals a running workload, and what differs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import typer
import yaml

from plimsoll.api.parse import InvalidServiceError
from plimsoll.cli.audit_result import Judged, Options, audit_reading
from plimsoll.cli.changes import ABSENT
from plimsoll.cli.hub import HubError, HubOption, hub_config
from plimsoll.cli.output import BAD_INPUT, DONE, NO, UNREACHABLE, Output, complain, emit, one_or_list, say
from plimsoll.cli.planning import ModelConfigOption, Planned, given_config, plan_manifest
from plimsoll.cli.text import aligned
from plimsoll.cli.workload_files import Reading, read_objects
from plimsoll.core.adopt.arguments import Left
from plimsoll.core.adopt.compare import Difference, differences, essential
from plimsoll.core.adopt.service import Adopted, adopt
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Plan, Refusal
from plimsoll.core.policy import Allowed, PodPolicy
from plimsoll.core.workloads.tree import at
from plimsoll.facts.models import ModelConfigError, UnknownArchitecture, read_model

_WILLING: Final = Inventory(policy=PodPolicy(allow=Allowed(token_secrets=("*",), host_paths=("/",))))
"""An owner who allows what the workload has today; what the real one may refuse is listed beside the service."""
_CONFIGURATION: Final = Left(
    "the model's configuration", "put config.json into a ConfigMap and name it in spec.model.configRef"
)
SUFFIX: Final = "-plimsoll"
_WIDTH: Final = 120


@dataclass(frozen=True)
class Imported:
    """One workload with the service that would replace it, its plan, and what differs."""

    judged: Judged
    adopted: Adopted
    planned: Planned | None
    differences: Sequence[Difference] = ()

    @property
    def name(self) -> str:
        """The workload."""
        return self.judged.object_name

    @property
    def refusal(self) -> str:
        """Why there is no service, or no plan for it; empty where there is."""
        if self.planned is None:
            return self.adopted.problem
        outcome = self.planned.outcome
        return f"{outcome.reason}: {outcome.message}" if isinstance(outcome, Refusal) else ""

    def as_json(self) -> dict[str, Any]:
        """One object."""
        server = self.judged.server
        return {
            **self.judged.whereabouts(),
            "argv": list(server.launch.argv) if server.launch.argv is not None else None,
            "service": self.adopted.manifest,
            "unexpressed": [{"what": each.what, "why": each.why} for each in self.adopted.left],
            "differences": [
                {"what": d.what, "before": d.before or None, "after": d.after or None, "reason": d.reason}
                for d in self.differences
            ],
            "same": not essential(self.differences) and not self.refusal,
            "plan": self.planned.result() if self.planned else None,
            "refusal": self.refusal or None,
        }


def import_(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Manifests or Helm values: files, folders, or - for stdin.")
    ],
    gpu: Annotated[str | None, typer.Option(help="The GPU product where manifests name none.")] = None,
    model_config: ModelConfigOption = None,
    hub: HubOption = False,
    suffix: Annotated[
        str, typer.Option(help="Added to the workload's name, so that old and new can run side by side.")
    ] = SUFFIX,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")] = Output.TABLE,
) -> None:
    """Write the VLLMService that would replace each running vLLM workload, and what differs.

    The service is held (annotation plimsoll.dev/hold): applied as it is, it plans and touches nothing. What it cannot
    say, and which flags its engine would have that the running one has not, stand above it as comments, each with the
    reason; -o json has them as lists. The way from one to the other without losing a request: docs/adoption.md.

    \b
      plimsoll import k8s/qwen.yaml > qwen-service.yaml
      kubectl get deployment qwen -n llm -o yaml | plimsoll import - --gpu NVIDIA-L4
      plimsoll import k8s/ -o json | jq '.[] | select(.same | not)'

    Exit code 0: every workload has a service with a feasible plan. 1: at least one has not. 2: something could not be
    read. 3: --hub was given and the hub could not be reached.
    """
    reading = read_objects(files)
    found, unreachable = imported(reading, Options(gpu, model_config, hub=hub), suffix)
    for line in (*reading.bad, *reading.notes):
        complain(line)
    if not found and not reading.bad:
        complain(f"no vLLM server in {', '.join(files)}")
    _print(found, output)
    if reading.bad:
        raise typer.Exit(BAD_INPUT)
    if unreachable:
        raise typer.Exit(UNREACHABLE)
    raise typer.Exit(NO if not found or any(each.refusal for each in found) else DONE)


def imported(reading: Reading, options: Options, suffix: str) -> tuple[list[Imported], bool]:
    """Every server of a reading as a service; whether the hub was asked and could not be reached."""
    given = given_config(options.model_config)
    audited = audit_reading(reading, options)
    claims = _claims(reading)
    found = [_one(judged, given, options, suffix, claims) for judged in audited.judged]
    return found, audited.unreachable


def _claims(reading: Reading) -> dict[tuple[str, str], tuple[str, ...]]:
    """Access modes of the claims among the files, as ``plan`` takes them."""
    found = {}
    for named in (each for many in reading.around().claims.values() for each in many):
        modes = at(named.body, "spec", "accessModes")
        if isinstance(modes, list):
            found[named.namespace or "default", named.name] = tuple(map(str, modes))
    return found


def _one(
    judged: Judged,
    given: ModelConfig | None,
    options: Options,
    suffix: str,
    claims: Mapping[tuple[str, str], tuple[str, ...]],
) -> Imported:
    server, evidence = judged.server, judged.judgement.evidence
    adopted = adopt(evidence, _model_limit(server.model or "", given, hub=options.hub), suffix)
    manifest = adopted.manifest
    if manifest is None:
        return Imported(judged, adopted, None)
    if given is not None:
        adopted = replace(adopted, left=(*adopted.left, _CONFIGURATION))
    try:
        planned = plan_manifest(manifest, given, claims, _WILLING, hub=options.hub)
    except InvalidServiceError as invalid:
        return Imported(
            judged, replace(adopted, manifest=None, problem=f"its figures make no service: {invalid}"), None
        )
    if not isinstance(planned.outcome, Plan):
        return Imported(judged, adopted, planned)
    dropped = {each.what: each.why for each in adopted.left}
    found = differences(server.arguments, planned.outcome.choice.args, dropped)
    return Imported(judged, adopted, planned, found)


def _model_limit(model: str, given: ModelConfig | None, *, hub: bool) -> int | None:
    """The longest request of the model's own configuration; None where nobody knows it."""
    try:
        config = given or bundled_config(model) or (hub_config(model) if hub else None)
        return read_model(config.config, config.quant_config).max_model_len if config else None
    except (HubError, ModelConfigError, UnknownArchitecture):
        return None


def _print(found: Sequence[Imported], output: Output) -> None:
    if output is Output.JSON:
        emit(one_or_list([each.as_json() for each in found]), output)
    elif output is Output.YAML:
        services = [each.adopted.manifest for each in found if each.adopted.manifest]
        typer.echo(yaml.safe_dump_all(services, sort_keys=False, width=_WIDTH), nl=False)
    elif found:
        say("\n".join(line for each in found for line in _document(each)))


def _document(each: Imported) -> Iterator[str]:
    """The service as YAML, with everything else as comments."""
    yield "---"
    file, line = each.judged.where()
    yield f"# {each.name}, container {each.judged.server.container_name or '-'} ({file}:{line})"
    if each.refusal:
        yield f"# not feasible: {each.refusal}" if each.adopted.manifest else f"# cannot be imported: {each.refusal}"
    yield from _comment("What the service does not say:", [(left.what, left.why) for left in each.adopted.left])
    rows = [(d.what, d.before or ABSENT, f"-> {d.after or ABSENT}", d.reason) for d in each.differences]
    yield from _comment("Flags that differ from the running ones:", rows)
    if each.adopted.manifest:
        yield yaml.safe_dump(each.adopted.manifest, sort_keys=False, width=_WIDTH).rstrip()


def _comment(title: str, rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        yield f"# {title}"
        yield from (f"#   {line}" for line in aligned(rows))
