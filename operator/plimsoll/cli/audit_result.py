"""What an audit found, with places in files: the values that every output is made of."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import typer

from plimsoll.cli.inventory import Prices
from plimsoll.cli.output import BAD_INPUT, complain
from plimsoll.cli.planning import given_config
from plimsoll.cli.predict import Models
from plimsoll.cli.workload_files import Reading, read_objects
from plimsoll.cli.yaml_documents import Place
from plimsoll.core.audit.evidence import Planner
from plimsoll.core.audit.judge import Judgement, judge
from plimsoll.core.audit.rule import RULES, Finding, Group, Severity
from plimsoll.core.plan.model import ModelConfig
from plimsoll.core.rows import ModelRequest, ModelSource
from plimsoll.core.workloads.accelerators import named_product
from plimsoll.core.workloads.read import Known
from plimsoll.core.workloads.server import Server
from plimsoll.facts import gpus
from plimsoll.facts.models import ModelFacts, read_model

IDLE_RULE: Final = "gpus-unused"
Accepted = frozenset[tuple[str, str, str]]
"""(rule, object, container) of findings that somebody has accepted."""
_NOTHING: Final[Accepted] = frozenset()


@dataclass(frozen=True)
class Options:
    """What the command line says beside the files."""

    gpu: str | None = None
    model_config: Path | None = None
    hub: bool = False
    ignored: frozenset[str] = frozenset()
    accepted: Accepted = _NOTHING


@dataclass(frozen=True)
class Judged:
    """One server with its place."""

    judgement: Judgement
    place: Place

    @property
    def server(self) -> Server:
        """The server."""
        return self.judgement.server

    @property
    def gpus(self) -> int:
        """GPUs that all its replicas hold, as far as the manifest says."""
        replicas = 1 if self.server.replicas is None else self.server.replicas
        return (self.server.gpus or 0) * replicas * self.server.candidate.nodes

    def cost(self, prices: Prices) -> float | None:
        """What they cost an hour; None where the product has no price, or is not known."""
        price = prices.get(self.server.product or "")
        return None if price is None or not self.gpus else self.gpus * price

    @property
    def idle_gpus(self) -> int:
        """Those that no engine uses."""
        unused = any(each.rule.id == IDLE_RULE for each in self.judgement.findings)
        return self.gpus - self.gpus * self.server.ranks // (self.server.gpus or 1) if unused else 0

    @property
    def object_name(self) -> str:
        """``Kind namespace/name``: stable over files and lines."""
        return f"{self.server.kind} {self.server.full_name}"

    def where(self, finding: Finding | None = None) -> tuple[str, int]:
        """(file, line) of a finding, or of the container."""
        path = finding.path if finding else self.server.candidate.path
        return self.place.name, self.place.line(path)

    def whereabouts(self, finding: Finding | None = None) -> dict[str, Any]:
        """The same as JSON, with object and container."""
        file, line = self.where(finding)
        named = {"kind": self.server.kind, "namespace": self.server.namespace, "name": self.server.name}
        return {"object": named, "container": self.server.container_name, "file": file, "line": line}


@dataclass
class Audited:
    """Everything that was found."""

    judged: list[Judged] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    objects: int = 0
    ignored: frozenset[str] = frozenset()
    accepted: Accepted = _NOTHING
    unreachable: bool = False
    prices: Prices = field(default_factory=dict)
    usage: Sequence[Mapping[str, Any]] = ()
    """What was really used, for each workload that Prometheus knows."""

    @property
    def findings(self) -> Iterator[tuple[Judged, Finding]]:
        """Findings that are neither ignored nor accepted."""
        for each in self.judged:
            yield from ((each, finding) for finding in self.of(each))

    def of(self, judged: Judged) -> list[Finding]:
        """Those of one server."""
        return [
            finding
            for finding in judged.judgement.findings
            if finding.rule.id not in self.ignored and self.key(judged, finding) not in self.accepted
        ]

    @staticmethod
    def key(judged: Judged, finding: Finding) -> tuple[str, str, str]:
        """What a baseline knows a finding by."""
        return finding.rule.id, judged.object_name, judged.server.container_name

    def counts(self) -> dict[Severity, int]:
        """Findings by severity, the worst first."""
        counted = Counter(finding.severity for _, finding in self.findings)
        return {severity: counted[severity] for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE)}

    @property
    def accepted_count(self) -> int:
        """Findings that a baseline accepts."""
        return sum(
            self.key(each, finding) in self.accepted for each in self.judged for finding in each.judgement.findings
        )

    def summary(self) -> str:
        """Everything in one sentence."""
        counts = self.counts()
        if not self.judged:
            return f"no vLLM server in {_count(self.objects, 'object')}"
        said = (
            ", ".join(_count(number, severity.value) for severity, number in counts.items() if number)
            or "nothing found"
        )
        old = f"; {self.accepted_count} accepted by the baseline" if self.accepted_count else ""
        servers = _count(len(self.judged), "vLLM server")
        return f"{servers} in {_count(self.objects, 'object')}: {said}{old}{self._held()}"

    def _held(self) -> str:
        """The GPUs of all, idle ones, and what they cost where every product has a price."""
        gpus, idle = (sum(getattr(each, what) for each in self.judged) for what in ("gpus", "idle_gpus"))
        if not gpus:
            return ""
        costs = [each.cost(self.prices) for each in self.judged if each.gpus]
        known = [cost for cost in costs if cost is not None]
        money = f", {sum(known):,.2f} per hour" if known and len(known) == len(costs) else ""
        return f"; {_count(gpus, 'GPU')}{money}" + (f", {idle} of them idle" if idle else "")

    def as_json(self) -> dict[str, Any]:
        """One object: findings, servers with what the engine gets, what could not be read or judged."""
        by_group = Counter(finding.group for _, finding in self.findings)
        return {
            "findings": [_finding_json(each, finding) for each, finding in self.findings],
            "servers": [_server_json(each, self.prices) for each in self.judged],
            "unreadable": list(self.bad),
            "skipped": list(self.notes),
            **({"usage": list(self.usage)} if self.usage else {}),
            "summary": {
                "objects": self.objects,
                "servers": len(self.judged),
                **{f"{severity.value}s": number for severity, number in self.counts().items()},
                "accepted": self.accepted_count,
                "gpus": sum(each.gpus for each in self.judged),
                "idleGpus": sum(each.idle_gpus for each in self.judged),
                "groups": {group.value: by_group[group] for group in Group},
            },
        }


def audit_files(files: Iterable[str], options: Options) -> Audited:
    """Read and judge files."""
    return audit_reading(read_objects(files), options)


def audit_reading(reading: Reading, options: Options, known: Known | None = None) -> Audited:
    """Judge what was read."""
    _check_rules(options.ignored)
    models = Models(Path.cwd(), hub=options.hub)
    planner = Planner(_with_config(models, given_config(options.model_config)))
    known = known or Known(product=given_gpu(options.gpu))
    judged = [Judged(judge(server, planner), place) for server, place in reading.servers(known)]
    return Audited(
        judged, reading.bad, reading.notes, len(reading.objects), options.ignored, options.accepted, models.unreachable
    )


def given_gpu(name: str | None) -> str | None:
    """The product that ``--gpu`` names; ends the command with exit code 2 when nobody knows it."""
    if name is None:
        return None
    product = named_product(name)
    if product is None:
        close = ", ".join(gpus.nearest(name))
        complain(f"--gpu: {name!r} is not a known GPU product{f'; nearest: {close}' if close else ''}")
        raise typer.Exit(BAD_INPUT)
    return product


def _check_rules(names: Iterable[str]) -> None:
    for name in names:
        if name not in RULES:
            close = get_close_matches(name, RULES, n=1)
            hint = f"; did you mean {close[0]}?" if close else "; docs/audit-rules.md lists all"
            complain(f"--ignore: there is no rule {name!r}{hint}")
            raise typer.Exit(BAD_INPUT)


def _with_config(models: Models, given: ModelConfig | None) -> ModelSource:
    """The catalogue, or one configuration for every model."""
    if given is None:
        return models
    facts = read_model(given.config, given.quant_config, weights_bytes=given.weights_bytes)

    def answer(request: ModelRequest) -> ModelFacts:  # noqa: ARG001 - whatever is asked for
        return facts

    return answer


def _finding_json(judged: Judged, finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.rule.id,
        "severity": finding.severity.value,
        "group": finding.group.value,
        "title": finding.rule.title,
        **judged.whereabouts(finding),
        "message": finding.message,
        "fix": finding.fix,
    }


def _server_json(judged: Judged, prices: Prices) -> dict[str, Any]:
    server, evidence = judged.server, judged.judgement.evidence
    found = evidence.prediction
    return {
        **judged.whereabouts(),
        "launch": server.launch.form,
        "argv": list(server.launch.argv) if server.launch.argv is not None else None,
        "unresolved": list(server.launch.unresolved),
        "image": server.image.text if server.image else None,
        "engineVersion": server.release_text,
        "model": server.model,
        "gpu": server.product,
        "gpus": server.gpus,
        "replicas": server.replicas,
        "costPerHour": judged.cost(prices),
        "weightsBytes": evidence.weight_bytes,
        "loadSeconds": evidence.estimated_seconds,
        "kv": {
            "outcome": found["outcome"],
            "tokens": found.get("kv_cache_size_tokens"),
            "maxConcurrency": found.get("max_concurrency"),
            "longestContext": found.get("estimated_max_model_len"),
        }
        if found
        else None,
        "unknown": list(judged.judgement.unknown),
    }


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
