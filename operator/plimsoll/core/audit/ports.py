"""Ports: whether engine, container, probes and Services mean the same one."""

from collections.abc import Iterator

from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.audit.rule import Group, Hit, Severity, rule
from plimsoll.core.workloads.server import Server
from plimsoll.core.workloads.tree import at, entries, text


@rule(
    "port-mismatch",
    Group.START,
    Severity.ERROR,
    title="The engine listens on another port",
    why="A probe or Service that asks a port on which nobody listens fails for ever: the pod never gets ready, or "
    "requests are refused.",
    fix="Use one number for --port, containerPort, the Service's targetPort and the probes.",
)
def port_mismatch(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Engine, container, probes and Service disagree."""
    if not server.argv_known or server.arguments.text("uds") or not _port_known(server):
        return
    engine = server.port
    named = {text(p, "name"): p.get("containerPort") for p in entries(server.container, "ports")}
    if not _shares_pod(server):
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = at(server.probe(name), "httpGet", "port") or at(server.probe(name), "tcpSocket", "port")
            number = named.get(asked, asked) if isinstance(asked, str) else asked
            if isinstance(number, int) and number != engine:
                yield Hit(f"vLLM listens on {engine} but {name} asks {number}", server.field(name))
        yield from _unreached(server, engine, named)


def _port_known(server: Server) -> bool:
    written = server.arguments.text("port")
    return written is None or written.isdecimal()


def _unreached(server: Server, engine: int, named: dict[str | None, object]) -> Iterator[Hit]:
    declared = [number for number in named.values() if isinstance(number, int)]
    if declared and engine not in declared and server.whole_pod:
        shown = ", ".join(map(str, declared))
        yield Hit(f"vLLM listens on {engine} but the container says {shown}", server.field("ports"), Severity.WARNING)
    for service in server.services:
        targets = [p.get("targetPort", p.get("port")) for p in entries(service.body, "spec", "ports")]
        numbers = [named.get(t, t) if isinstance(t, str) else t for t in targets]
        known = [number for number in numbers if isinstance(number, int)]
        if known and engine not in known and len(known) == len(numbers):
            yield Hit(f"vLLM listens on {engine} but {service} leads to {known[0]}", server.field("ports"))


def _shares_pod(server: Server) -> bool:
    """Whether another container of the pod may be who listens: a proxy beside the engine."""
    others = server.pod.get("containers")
    return isinstance(others, list) and len(others) > 1
