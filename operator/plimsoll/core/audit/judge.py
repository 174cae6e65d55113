"""All rules over servers: findings, the worst first, and what could not be judged."""

from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll.core.audit import (
    command_line,
    hardware,
    host_memory,
    ports,
    probes,
    rollouts,
    security,
    settings,
    surroundings,
    variables,
)
from plimsoll.core.audit.evidence import Evidence, Planner
from plimsoll.core.audit.rule import RULES, Finding
from plimsoll.core.workloads.server import Server

__all__ = ["MODULES", "RULES", "Judgement", "judge"]

MODULES = (
    command_line,
    hardware,
    settings,
    host_memory,
    probes,
    ports,
    rollouts,
    security,
    surroundings,
    variables,
)
"""Importing them registers their rules."""


@dataclass(frozen=True)
class Judgement:
    """One server, what is wrong with it, and what is not known."""

    server: Server
    evidence: Evidence
    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]


def judge(server: Server, planner: Planner) -> Judgement:
    """Ask every rule."""
    evidence = Evidence(server, planner)
    found = sorted(_findings(server, evidence), key=lambda each: -each.severity.rank)
    return Judgement(server, evidence, tuple(found), tuple(evidence.unknown()))


def _findings(server: Server, evidence: Evidence) -> Iterator[Finding]:
    for rule in RULES.values():
        for hit in rule.check(server, evidence):
            severity, group = hit.severity or rule.severity, hit.group or rule.group
            yield Finding(rule, severity, group, hit.message, hit.fix or rule.fix, hit.path)
