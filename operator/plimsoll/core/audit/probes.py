"""Probes: what kills an engine that loads or is busy, and what never notices that it is dead."""

import re
from collections.abc import Iterator
from typing import Final

from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.audit.rule import Group, Hit, Severity, rule
from plimsoll.core.workloads.server import Server
from plimsoll.core.workloads.tree import Tree, at, seconds

_BUSY_SECONDS: Final = 15
_ENDLESS_SECONDS: Final = 3600
_LONG_START_DELAY_SECONDS: Final = 180
_HEALTH = "httpGet: {path: /health, port: http}"


def first_kill_seconds(probe: Tree) -> int:
    """From the container's start to the kill by a probe that never succeeds."""
    return seconds(probe, "initialDelaySeconds", 0) + busy_kill_seconds(probe)


def busy_kill_seconds(probe: Tree) -> int:
    """How long answers may fail before the probe's limit is reached."""
    return seconds(probe, "periodSeconds", 10) * seconds(probe, "failureThreshold", 3)


def _threshold(needed: int, period: int) -> str:
    """The failures that make a budget of twice the load time."""
    return f"failureThreshold: {-(-needed * 2 // max(period, 1))}"


def _startup_probe(needed: int) -> str:
    return f"startupProbe: {{{_HEALTH}, periodSeconds: 10, {_threshold(needed, 10)}}}"


def _asks(probe: Tree | None) -> bool:
    return probe is not None and any(key in probe for key in ("httpGet", "exec", "tcpSocket", "grpc"))


def _left_out(server: Server, *others: str) -> bool:
    """Whether a chart's values have other probes, so that one which is absent was left out."""
    return server.candidate.scope == "values" and any(_asks(server.probe(name)) for name in others)


def _judged(server: Server) -> bool:
    """Whether a missing probe is really missing."""
    return server.whole_pod and not server.is_job


@rule(
    "no-startup-probe",
    Group.LOAD,
    Severity.WARNING,
    title="No startupProbe",
    why="vLLM's port is closed until the model is loaded, which takes minutes. Without a startupProbe the liveness "
    "probe must wait blindly: too short and it kills the engine while it loads, too long and a dead one stays.",
    fix="Add a startupProbe on /health whose periodSeconds × failureThreshold is twice the load time.",
)
def no_startup_probe(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The start is judged by no probe of its own."""
    beside = _left_out(server, "livenessProbe", "readinessProbe")
    if server.probe("startupProbe") is None and (_judged(server) or beside):
        needed = evidence.load_seconds
        yield Hit(
            f"no startupProbe: nothing tells a server that loads (allow about {needed} s) from one that hangs",
            server.candidate.path,
            fix=_startup_probe(needed),
        )


@rule(
    "no-liveness-probe",
    Group.LOAD,
    Severity.WARNING,
    title="No livenessProbe",
    why="An engine that hangs keeps its port open. Only a liveness probe restarts it.",
    fix="Add a livenessProbe on /health with timeoutSeconds 5 and failureThreshold 3, behind a startupProbe.",
)
def no_liveness_probe(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A hung engine is never restarted."""
    if server.probe("livenessProbe") is None and (_judged(server) or _left_out(server, "readinessProbe")):
        yield Hit("no livenessProbe: a hung engine is never restarted", server.candidate.path)


@rule(
    "no-readiness-probe",
    Group.LOAD,
    Severity.WARNING,
    title="No readinessProbe",
    why="Without one a pod counts as ready as soon as its process runs: requests go to an engine that still loads, and "
    "a rollout ends the old pods before the new ones serve.",
    fix="Add a readinessProbe on /health.",
)
def no_readiness_probe(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Traffic reaches an engine that still loads."""
    if server.probe("readinessProbe") is None and _judged(server):
        took = evidence.load_seconds
        yield Hit(
            f"no readinessProbe: requests fail for the {took} s or so that a new pod loads", server.candidate.path
        )


@rule(
    "liveness-kills-during-load",
    Group.START,
    Severity.ERROR,
    title="Liveness kills the server while it loads",
    why="Without a startupProbe the liveness probe runs from the start: initialDelaySeconds + periodSeconds × "
    "failureThreshold is all the time that loading may take. Below it the container is restarted for ever.",
    fix="Add a startupProbe; then the liveness probe needs no delay.",
)
def liveness_kills_during_load(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The first liveness kill comes before the load's end."""
    probe = server.probe("livenessProbe")
    if probe is None or not _asks(probe) or server.probe("startupProbe") is not None:
        return
    kill, needed = first_kill_seconds(probe), evidence.load_seconds
    if kill < needed and not _always_succeeds(probe):
        estimate = f" (estimate {evidence.estimated_seconds} s)" if evidence.estimated_seconds else ""
        yield Hit(
            f"liveness kills during load: no startupProbe and only {kill} s until the first kill, where loading may "
            f"take {needed} s{estimate}",
            server.field("livenessProbe"),
            fix=_startup_probe(needed),
        )


@rule(
    "startup-budget-too-short",
    Group.START,
    Severity.ERROR,
    title="Startup budget too short for the model",
    why="When periodSeconds × failureThreshold of the startupProbe is over, the container is killed, however far it "
    "had come. Weights that are fetched or read slowly, compilation and graph capture all count.",
    fix="Raise failureThreshold so that the budget is twice the load time: a pod that fails ends by itself.",
)
def startup_budget_too_short(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The start-up probe gives up before the engine serves."""
    probe = server.probe("startupProbe")
    if probe is None or not _asks(probe):
        return
    budget, needed = first_kill_seconds(probe), evidence.load_seconds
    if budget < needed:
        fetched = ", the download included" if server.fetches and not evidence.keeps_weights else ""
        yield Hit(
            f"startup budget too short: {budget} s, where loading may take {needed} s{fetched}",
            server.field("startupProbe"),
            fix=_threshold(needed, seconds(probe, "periodSeconds", 10)),
        )


@rule(
    "liveness-timeout-one-second",
    Group.LOAD,
    Severity.WARNING,
    title="Liveness timeout of 1 s",
    why="The server answers /health on the event loop that also takes requests and streams tokens: under load an "
    "answer can take longer than Kubernetes' default of one second, and a healthy engine is restarted.",
    fix="timeoutSeconds: 5 or more on the livenessProbe.",
)
def liveness_timeout_one_second(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A busy server cannot answer in time."""
    probe = server.probe("livenessProbe")
    if probe is not None and _asks(probe) and seconds(probe, "timeoutSeconds", 1) <= 1:
        how = "1 s" if "timeoutSeconds" in probe else "1 s (default, not set)"
        yield Hit(f"liveness timeout {how}: a busy server answers later", server.field("livenessProbe"))


@rule(
    "liveness-kills-busy-server",
    Group.LOAD,
    Severity.WARNING,
    title="Liveness kills a busy server within 15 s",
    why="A long prefill, a compilation or a pause of the node can hold the server's loop for seconds. A restart costs "
    "minutes of loading and every request in flight.",
    fix="periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6 on the livenessProbe.",
)
def liveness_kills_busy_server(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A short pause is taken for death."""
    probe = server.probe("livenessProbe")
    if probe is not None and _asks(probe) and busy_kill_seconds(probe) <= _BUSY_SECONDS:
        after = busy_kill_seconds(probe)
        yield Hit(
            f"liveness kills a busy server after {after} s, and a restart takes about {evidence.load_seconds} s",
            server.field("livenessProbe"),
        )


@rule(
    "readiness-too-strict",
    Group.LOAD,
    Severity.WARNING,
    title="One slow answer takes the pod out of service",
    why="A readiness probe that fails at the first slow answer removes a busy pod from the Service; its load goes to "
    "the others, which then fail as well.",
    fix="timeoutSeconds: 5 and failureThreshold: 3 on the readinessProbe; periodSeconds not below the timeout.",
)
def readiness_too_strict(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Readiness flaps under load."""
    probe = server.probe("readinessProbe")
    if probe is None or not _asks(probe):
        return
    timeout, period = seconds(probe, "timeoutSeconds", 1), seconds(probe, "periodSeconds", 10)
    if seconds(probe, "failureThreshold", 3) <= 1 and timeout <= 2:  # noqa: PLR2004
        yield Hit(f"readiness fails after one answer slower than {timeout} s", server.field("readinessProbe"))
    elif timeout > period:
        yield Hit(
            f"readiness timeout {timeout} s longer than its period of {period} s: a dead pod stays in the Service",
            server.field("readinessProbe"),
            Severity.NOTE,
        )


@rule(
    "readiness-only-tcp",
    Group.LOAD,
    Severity.NOTE,
    title="Readiness is only a TCP check",
    why="An open port does not say that the engine behind the API server still works.",
    fix="Ask /health by httpGet.",
)
def readiness_only_tcp(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A dead engine stays in the Service."""
    probe = server.probe("readinessProbe")
    if probe is not None and "tcpSocket" in probe:
        yield Hit(
            "readiness is only a TCP check: the port stays open when the engine is dead", server.field("readinessProbe")
        )


@rule(
    "probe-proves-nothing",
    Group.LOAD,
    Severity.WARNING,
    title="A probe that cannot fail",
    why="A command that always succeeds, or looks for a line that was written once, says nothing about the engine now.",
    fix="Ask /health by httpGet.",
)
def probe_proves_nothing(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A hung engine looks alive."""
    for name, word in (("livenessProbe", "liveness"), ("readinessProbe", "readiness")):
        probe = server.probe(name) or {}
        if _always_succeeds(probe):
            yield Hit(f"{word} always succeeds ({_command(probe)})", server.field(name))
        elif (re.search(r"\bgrep\b", _command(probe)) and ".log" in _command(probe)) or "log file" in _command(probe):
            yield Hit(f"{word} greps a log file: a line once written stays there after a crash", server.field(name))


def _command(probe: Tree) -> str:
    words = at(probe, "exec", "command")
    return " ".join(map(str, words)) if isinstance(words, list) else ""


def _always_succeeds(probe: Tree) -> bool:
    return (
        re.fullmatch(r"((/bin/)?(ba)?sh -c )?(exit 0|true|/bin/true|echo .*|ls.*)", _command(probe).strip()) is not None
    )


@rule(
    "probe-delay-too-long",
    Group.LOAD,
    Severity.WARNING,
    title="A delay that makes a probe useless",
    why="initialDelaySeconds counts seconds. A delay of hours (often milliseconds by mistake) switches the probe "
    "off; a "
    "long one before a startupProbe makes every start as slow as the slowest.",
    fix="Leave initialDelaySeconds out and let a startupProbe cover the load.",
)
def probe_delay_too_long(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The probe starts too late to help."""
    for name in ("livenessProbe", "readinessProbe"):
        delay = seconds(server.probe(name) or {}, "initialDelaySeconds", 0)
        if delay >= _ENDLESS_SECONDS:
            guess = ": milliseconds taken for seconds?" if delay % 1000 == 0 and delay >= 10 * _ENDLESS_SECONDS else ""
            yield Hit(f"{name} initialDelaySeconds {delay} ({delay / 3600:.1f} hours){guess}", server.field(name))
    delay = seconds(server.probe("startupProbe") or {}, "initialDelaySeconds", 0)
    if delay >= _LONG_START_DELAY_SECONDS:
        yield Hit(
            f"startupProbe delay {delay} s: every start costs {delay / 60:.0f} minutes, however quickly it loads",
            server.field("startupProbe"),
            Severity.NOTE,
        )


@rule(
    "ready-timeout-above-startup-budget",
    Group.LOAD,
    Severity.WARNING,
    title="The engine may wait longer than the kubelet",
    why="VLLM_ENGINE_READY_TIMEOUT_S lets the engine load for so long, but the startupProbe kills the container "
    "before.",
    fix="Make periodSeconds × failureThreshold of the startupProbe at least VLLM_ENGINE_READY_TIMEOUT_S.",
)
def ready_timeout_above_startup_budget(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The two budgets disagree."""
    probe, timeout = server.probe("startupProbe"), server.environment.get("VLLM_ENGINE_READY_TIMEOUT_S", "")
    if probe is not None and _asks(probe) and timeout.isdecimal() and int(timeout) > first_kill_seconds(probe):
        yield Hit(
            f"startup probe budget {first_kill_seconds(probe):,} s but engine-ready timeout {int(timeout):,} s: the "
            "kubelet "
            "gives up first",
            server.field("startupProbe"),
        )
