"""``plimsoll hold|accept|restart|approve|reject|revert``: what a person tells the operator about one live service.

Each sets an annotation and nothing else; the operator acts on it. ``spec`` stays as it is in Git.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.ports import SERVICES, Object
from plimsoll.api import names, reasons
from plimsoll.cli.cluster import NameArgument, NamespaceOption, with_service
from plimsoll.cli.output import BAD_INPUT, DONE, NO, Output, complain, emit, say

_OFFERED: Final = re.compile(rf"{re.escape(names.ANNOTATION_ACCEPT_PLAN)}: (\S+)")
_NOTHING_RUNS: Final = (reasons.NO_EXPERIMENT.name, reasons.DISABLED.name, reasons.NO_OBSERVATION.name)
_RETUNED: Final = "Retune"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask the API server, but change nothing.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]


@dataclass(frozen=True)
class Wish:
    """An annotation to set (None removes it) and what follows. ``refused`` says why not, and the exit code."""

    annotation: str
    value: str | None
    said: str
    refused: int = DONE


def hold(
    name: NameArgument,
    namespace: NamespaceOption = "",
    off: Annotated[bool, typer.Option("--off", help="Let the operator act again.")] = False,
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Hold a service: the operator plans, observes and reports, but writes nothing to its fleet until --off.

    \b
      plimsoll hold qwen-docs -n llm
      plimsoll hold qwen-docs -n llm --off

    Exit code 0: done, or it was so already. 2: there is no such service. 3: the API server cannot be had.
    """
    value = None if off else "true"
    said = "the operator acts again" if off else f"held: observing only, until plimsoll hold {name} --off"
    _tell(name, namespace, lambda _: Wish(names.ANNOTATION_HOLD, value, said), output, dry_run=dry_run)


def accept(
    name: NameArgument,
    namespace: NamespaceOption = "",
    revision: Annotated[
        str, typer.Option(help="Accept only this one; without it, the one that PlanUpdateAvailable offers.")
    ] = "",
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Accept the newer plan that the operator offers: its pods are then replaced, a few at a time.

    A running plan is never changed by a newer operator, catalogue or price; what it would change is shown by
    `plimsoll explain`.

    \b
      plimsoll accept qwen-docs -n llm --dry-run
      plimsoll accept qwen-docs -n llm --revision qwen-docs-6f9c

    Exit code 0: done. 1: no newer plan is offered. 2: another revision is offered than the one named, or there is no
    such service. 3: the API server cannot be had.
    """
    _tell(name, namespace, lambda service: acceptance(service, revision), output, dry_run=dry_run)


def restart(
    name: NameArgument,
    namespace: NamespaceOption = "",
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Replace the pods of a service, a few at a time. It is planned afresh: a newer plan that is offered comes with it.

    \b
      plimsoll restart qwen-docs -n llm

    Exit code 0: done. 2: there is no such service. 3: the API server cannot be had.
    """
    wish = Wish(names.ANNOTATION_RESTART, _now(), "its pods are replaced, a few at a time")
    _tell(name, namespace, lambda _: wish, output, dry_run=dry_run)


def approve(
    name: NameArgument,
    namespace: NamespaceOption = "",
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Approve the experiment with an engine flag that waits: it is tried on one replica, then kept or rolled back.

    Exit code 0: done. 1: nothing waits for approval. 2: there is no such service. 3: the API server cannot be had.
    """
    _tell(name, namespace, lambda service: verdict(service, "approve"), output, dry_run=dry_run)


def reject(
    name: NameArgument,
    namespace: NamespaceOption = "",
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Reject the experiment with an engine flag that waits or runs.

    Exit code 0: done. 1: there is nothing to reject. 2: there is no such service. 3: the API server cannot be had.
    """
    _tell(name, namespace, lambda service: verdict(service, "reject"), output, dry_run=dry_run)


def revert(
    name: NameArgument,
    namespace: NamespaceOption = "",
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take back what an experiment has changed: the flags of the plan count again.

    Exit code 0: done. 1: there is nothing to revert. 2: there is no such service. 3: the API server cannot be had.
    """
    _tell(name, namespace, lambda service: verdict(service, "revert"), output, dry_run=dry_run)


def acceptance(service: Object, revision: str) -> Wish:
    """The acceptance of the revision that the condition PlanUpdateAvailable offers."""
    update = _condition(service, names.PLAN_UPDATE_AVAILABLE)
    found = _OFFERED.search(str(update.get("message", ""))) if update.get("status") == "True" else None
    if found is None:
        why = f" ({update['message']})" if update.get("message") else ""
        return Wish(names.ANNOTATION_ACCEPT_PLAN, None, f"no newer plan is offered{why}", NO)
    if revision and revision != found[1]:
        said = f"--revision: {revision} is not what is offered; offered is {found[1]}"
        return Wish(names.ANNOTATION_ACCEPT_PLAN, None, said, BAD_INPUT)
    return Wish(names.ANNOTATION_ACCEPT_PLAN, found[1], f"accepted {found[1]}: its pods are replaced, a few at a time")


def verdict(service: Object, word: str) -> Wish:
    """A verdict on the experiment that waits or runs; ``revert`` also on one that was kept."""
    trial = _condition(service, names.EXPERIMENTING)
    there = trial.get("reason") is not None and trial.get("reason") not in _NOTHING_RUNS
    kept = word == "revert" and any(each.get("kind") == _RETUNED for each in _status(service).get("decisions") or ())
    if there or kept:
        return Wish(
            names.ANNOTATION_EXPERIMENT,
            _said_anew(service, word),
            f"{word}: {trial.get('message') or 'the last change'}",
        )
    why = f" ({trial['message']})" if trial.get("message") else ""
    return Wish(names.ANNOTATION_EXPERIMENT, None, f"there is nothing to {word}{why}", NO)


def _said_anew(service: Object, word: str) -> str:
    """The word; with the time behind it where it stands there already, since only another value is news."""
    there = ((service.get("metadata") or {}).get("annotations") or {}).get(names.ANNOTATION_EXPERIMENT, "")
    return f"{word} {_now()}" if there.partition(" ")[0] == word else word


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _tell(name: str, namespace: str, decide: Callable[[Object], Wish], output: Output, *, dry_run: bool) -> None:
    async def told(cluster: KubeCluster, service: Object) -> tuple[str, Wish]:
        wish = decide(service)
        if wish.refused == DONE and _annotations(service).get(wish.annotation) != wish.value:
            change = {wish.annotation: wish.value}
            await cluster.annotate(SERVICES, service, change, names.MANAGER_CLI, dry_run=dry_run)
        return "/".join((service["metadata"]["namespace"], service["metadata"]["name"])), wish

    service, wish = with_service(name, namespace, told)
    if wish.refused != DONE:
        complain(f"{service}: {wish.said}")
        raise typer.Exit(wish.refused)
    result = {"service": service, "annotation": wish.annotation, "value": wish.value, "dryRun": dry_run}
    if output is not Output.TABLE:
        emit({**result, "message": wish.said}, output)
        return
    written = f"{wish.annotation} removed" if wish.value is None else f"{wish.annotation}: {wish.value}"
    say(f"{service}: {wish.said} ({written}{', dry run: nothing changed' if dry_run else ''})")


def _condition(service: Object, kind: str) -> Mapping[str, Any]:
    found: Sequence[Mapping[str, Any]] = _status(service).get("conditions") or ()
    return next((each for each in found if each.get("type") == kind), {})


def _status(service: Object) -> Mapping[str, Any]:
    return service.get("status") or {}


def _annotations(service: Object) -> Mapping[str, str]:
    return service["metadata"].get("annotations") or {}
