"""The HTML report of an audit: one file with everything in it, in the dress of the plan's report."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from plimsoll.cli.audit_result import Audited, Judged
from plimsoll.cli.audit_text import about, usage_lines
from plimsoll.cli.report.page import whole
from plimsoll.core.audit.rule import Finding, Group

_LEGEND: Final = (
    "Errors will not start or serve as written; warnings break under load, cost money or open a door; notes are worth "
    "knowing. What is not judged is not known. Made by plimsoll audit --html; the same: plimsoll audit -o json."
)


def audit_page(audited: Audited) -> str:
    """The whole page."""
    rows = "".join(_line(each, at, audited.of(each)) for at, each in enumerate(audited.judged))
    unread = "".join(f"<li>{escape(line)}</li>" for line in audited.bad)
    overview = f"<p>{escape(audited.summary())}</p><table>{rows}</table>" + (f"<ul>{unread}</ul>" if unread else "")
    used = "".join(f"<p>{escape(line)}</p>" for line in usage_lines(audited) if line)
    body = used + "".join(_server(audited, each, f"s{at}") for at, each in enumerate(audited.judged))
    return whole("Audit of vLLM workloads", "plimsoll audit --html", "", overview, body, _LEGEND)


def _line(judged: Judged, at: int, found: Sequence[Finding]) -> str:
    link = f'<a href="#s{at}">{escape(judged.object_name)}</a>'
    return f"<tr><td>{link}</td><td>{escape(_verdict(found))}</td></tr>"


def _verdict(found: Sequence[Finding]) -> str:
    counts = [(word, sum(each.severity.value == word for each in found)) for word in ("error", "warning", "note")]
    return (
        ", ".join(f"{number} {word}{'s' if number > 1 else ''}" for word, number in counts if number) or "nothing found"
    )


def _server(audited: Audited, judged: Judged, anchor: str) -> str:
    found, (file, line) = audited.of(judged), judged.where()
    head = f'<h2 id="{anchor}">{escape(judged.object_name)}</h2><p>{escape(about(judged))}</p>'
    unknown = "".join(f"<p>Not judged: {escape(each)}</p>" for each in judged.judgement.unknown)
    return f"<section>{head}<p>{escape(file)}:{line}</p>{''.join(_groups(judged, found))}{unknown}</section>"


def _groups(judged: Judged, found: Sequence[Finding]) -> Iterator[str]:
    for group in Group:
        rows = "".join(_row(judged, each) for each in found if each.group is group)
        if rows:
            yield f"<h3>{escape(group.value)}</h3><table>{rows}</table>"


def _row(judged: Judged, finding: Finding) -> str:
    cells = (finding.severity.value, finding.message, f"Fix: {finding.fix}", f"line {judged.where(finding)[1]}")
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
