"""``plimsoll audit``: what is wrong with the vLLM servers that already run, before anything is installed."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from plimsoll.cli.audit_cluster import Live, audit_cluster
from plimsoll.cli.audit_result import Audited, Options, audit_files
from plimsoll.cli.audit_text import markdown, table
from plimsoll.cli.baseline import read_baseline, write_baseline
from plimsoll.cli.hub import HubOption
from plimsoll.cli.inventory import PriceOption, given_inventory, prices_of
from plimsoll.cli.output import BAD_INPUT, DONE, NO, UNREACHABLE, Output, complain, emit, say, write_file
from plimsoll.cli.planning import ModelConfigOption
from plimsoll.core.audit.rule import Severity


class Form(StrEnum):
    """How findings are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    SARIF = "sarif"
    MARKDOWN = "markdown"


class FailOn(StrEnum):
    """From which severity on the exit code is 1."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    NEVER = "never"


def audit(  # noqa: PLR0917 - a command has as many options as it has
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE…", help="Manifests or Helm values: files, folders, or - for stdin."),
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Read a live cluster: lists and gets, nothing else.")
    ] = False,
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", "-n", help="Only this namespace of the cluster; several times.")
    ] = None,
    context: Annotated[
        list[str] | None, typer.Option(help="A context of the kubeconfig, else the current one; several times.")
    ] = None,
    all_contexts: Annotated[
        bool, typer.Option("--all-contexts", help="Every context of the kubeconfig, one by one.")
    ] = False,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Ask this Prometheus what the workloads really used.")
    ] = None,
    period: Annotated[str, typer.Option(help="How far back Prometheus is asked: 12h, 7d, 2w.")] = "7d",
    gpu: Annotated[
        str | None, typer.Option(help="The GPU product where manifests name none, e.g. NVIDIA-L4 or H100.")
    ] = None,
    price: PriceOption = None,
    model_config: ModelConfigOption = None,
    hub: HubOption = False,
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit code 1 from this severity on.", show_default=True)
    ] = FailOn.ERROR,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Leave a rule out; may be given several times.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="A file of accepted findings: only new ones are shown and counted.")
    ] = None,
    save_baseline: Annotated[
        Path | None, typer.Option(help="Write all findings to this file as accepted, and exit with 0.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write a report: one file that needs nothing else.")] = None,
    output: Annotated[Form, typer.Option("--output", "-o", help="How to print the findings.")] = Form.TABLE,
) -> None:
    """Find what is wrong with vLLM workloads: what will not start, break, waste GPUs, is insecure or fragile.

    Reads Deployments, StatefulSets, LeaderWorkerSets, Jobs, Pods, KServe, KubeAI, KAITO and production-stack objects,
    their Helm values, and the Services, autoscalers, claims and ConfigMaps around them. Changes nothing; files need no
    network. Every rule: docs/audit-rules.md.

    \b
      plimsoll audit k8s/
      helm template mychart | plimsoll audit -
      plimsoll audit k8s/ --gpu NVIDIA-L4 --fail-on warning
      plimsoll audit k8s/ -o sarif > audit.sarif
      plimsoll audit --cluster -n llm --prometheus http://localhost:9090 --period 14d

    Exit code 0: nothing of --fail-on's severity or worse. 1: something. 2: something could not be read; the rest is
    judged all the same. 3: something asked for could not be reached.
    """
    accepted = read_baseline(baseline)
    options = Options(gpu, model_config, hub=hub, ignored=frozenset(ignore or ()), accepted=accepted)
    live = Live(tuple(namespace or ()), tuple(context or ()), everything=all_contexts)
    wanted = cluster or all_contexts or bool(context)
    audited = audit_cluster(live, options) if wanted else audit_files(_asked(files), options)
    audited.prices = prices_of(given_inventory(None, price))
    if prometheus is not None:
        from plimsoll.cli.audit_usage import add_usage, period_seconds  # noqa: PLC0415 - files need no client

        add_usage(audited, prometheus, period_seconds(period))
    for line in (*audited.bad, *audited.notes):
        complain(line)
    _print(audited, output)
    if html is not None:
        from plimsoll.cli.report.audit_page import audit_page  # noqa: PLC0415 - only a report needs it

        write_file("--html", html, audit_page(audited))
    if save_baseline is not None:
        write_baseline(save_baseline, audited)
    raise typer.Exit(_exit_code(audited, fail_on, accepting=save_baseline is not None))


def _asked(files: Sequence[str] | None) -> Sequence[str]:
    if not files:
        complain("name files or folders, - for stdin, or --cluster")
        raise typer.Exit(BAD_INPUT)
    return files


def _print(audited: Audited, output: Form) -> None:
    if output is Form.SARIF:
        from plimsoll.cli.sarif import sarif  # noqa: PLC0415 - only the format asked for is loaded

        emit(sarif(audited), Output.JSON)
    elif output in {Form.JSON, Form.YAML}:
        emit(audited.as_json(), Output(output))
    elif audited.objects or not (audited.bad or audited.unreachable):  # else what went wrong is all there is to say
        say("\n".join(markdown(audited) if output is Form.MARKDOWN else table(audited)))


def _exit_code(audited: Audited, fail_on: FailOn, *, accepting: bool) -> int:
    if audited.bad:
        return BAD_INPUT
    if audited.unreachable:
        return UNREACHABLE
    if accepting or fail_on is FailOn.NEVER:
        return DONE
    least = Severity(fail_on).rank
    return NO if any(finding.severity.rank >= least for _, finding in audited.findings) else DONE
