"""An audit as people read it: at a terminal and in a pull request."""

from collections.abc import Iterator, Sequence
from typing import Final

import typer

from plimsoll.cli.audit_result import Audited, Judged
from plimsoll.core.audit.rule import Finding, Group, Severity

MARK: Final = "<!-- plimsoll-audit -->"
"""First line of the markdown: by it a workflow finds its own comment and updates it."""
_COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def table(audited: Audited) -> Iterator[str]:
    """Lines for a terminal: each server, its findings by group, what is not known."""
    for judged in audited.judged:
        found = audited.of(judged)
        yield typer.style(f"{judged.object_name}  {_place(judged)}", bold=True)
        yield f"  {about(judged)}"
        for group in Group:
            of_group = [finding for finding in found if finding.group is group]
            if of_group:
                yield f"  {group.value}"
                yield from _findings(judged, of_group)
        if not found:
            yield "  nothing found"
        yield from (f"  not judged: {each}" for each in judged.judgement.unknown)
        yield ""
    yield from usage_lines(audited)
    yield audited.summary()


def usage_lines(audited: Audited) -> Iterator[str]:
    """What Prometheus says was used, one workload a line."""
    for each in audited.usage:
        yield f"{each['object']}: {each['said']}"
    if audited.usage:
        yield ""


def about(judged: Judged) -> str:
    """What a server is, in one line."""
    server, evidence = judged.server, judged.judgement.evidence
    release = f"vLLM {server.release_text}" if server.release else "vLLM of unknown release"
    gpus = f"{server.gpus} × {server.product or 'GPU'}" if server.gpus else server.product or ""
    parts = [release, server.model or "model unknown", gpus]
    found = evidence.prediction
    if found and found["outcome"] == "starts":
        parts.append(f"KV cache {found['kv_cache_size_tokens']:,} tokens, {found['max_concurrency']:.1f} full requests")
    if server.replicas is not None:
        parts.append("1 replica" if server.replicas == 1 else f"{server.replicas} replicas")
    return " · ".join(part for part in parts if part)


def _findings(judged: Judged, found: Sequence[Finding]) -> Iterator[str]:
    for finding in found:
        word = typer.style(f"{finding.severity.value:8}", fg=_COLOURS[finding.severity])
        yield f"    {word} {finding.message}"
        line = f"{judged.where(finding)[1]}: " if judged.place.node is not None else ""
        yield f"             {line}{finding.rule.id} · fix: {finding.fix}"


def markdown(audited: Audited) -> Iterator[str]:
    """A comment for a pull request."""
    yield MARK
    yield f"**Plimsoll audit:** {audited.summary()}"
    for judged in audited.judged:
        found = audited.of(judged)
        if not found:
            continue
        yield from ("", f"### `{judged.object_name}`", "", _cell(about(judged)), "")
        yield from ("| | finding | fix | where |", "|---|---|---|---|")
        for finding in found:
            file, line = judged.where(finding)
            message = f"{_cell(finding.message)} (`{finding.rule.id}`)"
            yield f"| {finding.severity.value} | {message} | {_cell(finding.fix)} | `{_cell(file)}:{line}` |"
        unknown = judged.judgement.unknown
        yield from (["", f"Not judged: {_cell('; '.join(unknown))}"] if unknown else [])
    if audited.bad:
        yield from ("", "Could not be read:", *(f"- {_cell(line)}" for line in audited.bad))


def _place(judged: Judged) -> str:
    file, line = judged.where()
    return f"{file}:{line}" if judged.place.node is not None else file


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
