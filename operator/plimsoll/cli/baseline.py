"""A file of accepted findings: a team starts with what it has, and hears only of what is new."""

import json
from pathlib import Path
from typing import Any

import typer

from plimsoll.cli.audit_result import Accepted, Audited
from plimsoll.cli.output import BAD_INPUT, complain, write_file

_KEYS = ("rule", "object", "container")


def read_baseline(path: Path | None) -> Accepted:
    """The accepted findings; ends the command with exit code 2 when the file is none."""
    if path is None:
        return frozenset()
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
        return frozenset(_entry(each) for each in loaded["accepted"])
    except OSError as error:
        why = error.strerror or str(error)
    except (ValueError, KeyError, TypeError, RecursionError):
        why = 'not a baseline: {"accepted": [{"rule": …, "object": …, "container": …}]}, as --save-baseline writes it'
    complain(f"--baseline: {path}: {why}")
    raise typer.Exit(BAD_INPUT)


def _entry(written: dict[str, Any]) -> tuple[str, str, str]:
    rule, of, container = (str(written[key]) for key in _KEYS)
    return rule, of, container


def write_baseline(path: Path, audited: Audited) -> None:
    """Accept everything that was found now, and what was accepted before and is still there."""
    keys = {audited.key(each, finding) for each in audited.judged for finding in each.judgement.findings}
    rows = [dict(zip(_KEYS, key, strict=True)) for key in sorted(keys)]
    write_file("--save-baseline", path, json.dumps({"accepted": rows}, indent=1) + "\n")
