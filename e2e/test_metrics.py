"""The operator's queries on a real Prometheus: recorded pages of vLLM releases, and faults before a live fleet."""

import asyncio
import gzip
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
import yaml

from e2e.controlplane import binaries
from e2e.controlplane.ports import HOST, PortLeases
from e2e.controlplane.process import Process
from e2e.controlplane.scratch import Scratch
from e2e.eventually import eventually
from e2e.fleet import control
from e2e.fleet.commands import SOCKET_NAME
from e2e.labrun import Lab, LabOptions
from e2e.look import H100, Apply, Look, applier
from plimsoll.adapters.prometheus import PrometheusSource
from plimsoll.api import names
from plimsoll.core import promql
from plimsoll.core.judge import Window
from plimsoll.core.promql import Windows
from plimsoll.core.sampling import Answer, Engine, PodKey, read
from plimsoll.core.signals import Sample, Signal
from plimsoll.core.trial_windows import read_windows, window_query
from plimsoll.settings import PrometheusSettings

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(400)]

PAGES: Final = Path(__file__).parents[1] / "tests" / "data" / "engines"
VERSIONS: Final = sorted(path.name.removeprefix("metrics-").removesuffix(".txt.gz") for path in PAGES.glob("*.gz"))
OLD: Final = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:prefix_cache_": "vllm:gpu_prefix_cache_",
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
}


class Recorded:
    """Pages of releases whose gauges and counters move as a busy engine's do, at ``/VERSION``."""

    def __init__(self) -> None:
        files = {version: PAGES / f"metrics-{version}.txt.gz" for version in VERSIONS}
        self._pages = {version: gzip.decompress(file.read_bytes()).decode() for version, file in files.items()}
        old = self._pages["0.11.0"]
        for new, before in OLD.items():
            old = re.sub(rf"(?m)^{re.escape(before)}.*\n", "", old).replace(new, before)
        self._pages["before"] = old
        self._scrapes = 0

    def page(self, version: str) -> str:
        self._scrapes += 1
        text = self._pages[version]
        for name, value in (("usage_perc", 0.25), ("num_requests_running", 3), ("num_requests_waiting", 2)):
            text = re.sub(rf"(?m)^(vllm:\w*{name}{{.*}}) \S+$", rf"\1 {value}", text)
        moving = r"(?m)^(vllm:\w+(?:_total|_bucket|_count|_sum){.*}) (\S+)$"
        return re.sub(moving, lambda m: f"{m[1]} {float(m[2]) + 10 * self._scrapes}", text)


@pytest.fixture(scope="module")
def pages() -> Iterator[int]:
    """The port where the pages are."""
    recorded = Recorded()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            with suppress(OSError):  # the scrape was given up
                self.wfile.write(recorded.page(self.path.strip("/")).encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def scraped(pages: int) -> Iterator[str]:
    """A Prometheus of its own that scrapes each page as a pod, and those of 0.32.0 by two jobs."""
    jobs = [(version, version) for version in (*VERSIONS, "before")] + [("again", "0.32.0")]
    scrape = [
        {
            "job_name": job,
            "metrics_path": f"/{version}",
            "static_configs": [
                {"targets": [f"{HOST}:{pages}"], "labels": {"namespace": "llm", "pod": version, "cluster": "one"}}
            ],
        }
        for job, version in jobs
    ]
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": scrape}
    leases, built = PortLeases(), binaries.ensure()
    port = leases.lease()
    with Scratch() as scratch:
        (scratch.path / "config.yaml").write_text(yaml.safe_dump(config))
        argv = [str(built.prometheus), f"--config.file={scratch.path / 'config.yaml'}", "--log.level=warn"]
        argv += [f"--storage.tsdb.path={scratch.path / 'data'}", f"--web.listen-address={HOST}:{port}"]
        process = Process("prometheus", argv, log=scratch.path / "log", env=scratch.mark(), cwd=scratch.path)
        process.start()
        yield f"http://{HOST}:{port}"
        process.stop()
    leases.close()


async def readings(url: str, **labels: str) -> dict[PodKey, dict[str, Engine]]:
    source = PrometheusSource(PrometheusSettings(url=url, timeout_seconds=10))
    asked = promql.queries(Windows(6, 6), labels, [95])
    answers = dict(zip(asked, await asyncio.gather(*map(source.query, asked.values())), strict=True))
    source.close()
    return read({name: answer for name, answer in answers.items() if isinstance(answer, Answer)}, 90)


def known(engine: Engine) -> dict[Signal, float]:
    """What is a number; of latencies the percentile that was asked for."""
    return {signal: reading.value for (signal, _), reading in engine.items() if isinstance(reading, Sample)}


LATER: Final = {Signal.REJECTED, Signal.POOL_TOKENS}
"""Signals that the older releases do not have."""


@pytest.mark.parametrize("version", [*VERSIONS, "before"])
def test_every_release_is_read(scraped: str, version: str) -> None:
    def found() -> dict[Signal, float]:
        engine = asyncio.run(readings(scraped)).get(("llm", version), {}).get("0", {})
        seen = known(engine)
        return seen if set(Signal) - LATER <= seen.keys() else {}

    seen = eventually(found, within_seconds=60)
    assert (seen[Signal.USAGE], seen[Signal.USAGE_PEAK], seen[Signal.RUNNING], seen[Signal.WAITING]) == (
        0.25,
        0.25,
        3,
        2,
    )
    # Ten more at every scrape, of which there is one a second (0.32.0: two, from two jobs, counted once).
    assert all(seen[signal] > 1 for signal in (Signal.PROMPT_TOKENS, Signal.GENERATION_TOKENS, Signal.PREEMPTIONS))
    assert seen[Signal.HIT_RATIO] == pytest.approx(1, abs=0.2)
    assert seen[Signal.RUNNING_MEAN] == pytest.approx(3)
    assert seen[Signal.ITL_MEAN] == pytest.approx(1, abs=0.2)


def test_what_newer_releases_have_is_read(scraped: str) -> None:
    found = eventually(lambda: asyncio.run(readings(scraped)).get(("llm", "0.32.0")), within_seconds=60)
    assert found is not None
    assert known(found["0"]).keys() >= LATER


def test_only_series_with_the_labels_of_the_settings_count(scraped: str) -> None:
    assert eventually(lambda: asyncio.run(readings(scraped, cluster="one")), within_seconds=60)
    assert asyncio.run(readings(scraped, cluster="two")) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_window_of_the_past_is_read_of_every_release(scraped: str, version: str) -> None:
    """Each figure that canary and control are compared by; a counter grows by ten a scrape, one a second."""

    def found() -> Window | None:
        source = PrometheusSource(PrometheusSettings(url=scraped, timeout_seconds=10))
        answer = asyncio.run(source.query(window_query([version], "llm", 5.0, 2.0, {})))
        source.close()
        window = read_windows(answer, 5.0).get(version) if isinstance(answer, Answer) else None
        return window if window and window.finished and window.token_seconds else None

    window = eventually(found, within_seconds=60)
    assert window is not None
    assert (window.waiting, window.usage) == (2, 0.25)
    figures = (window.ttft_seconds, window.request_seconds, window.tokens, window.preemptions, window.failed)
    assert all(figure is not None and figure > 0 for figure in figures)


# A fleet under load and one at rest, while Prometheus and pods' pages misbehave.

TICK_SECONDS: Final = 0.5
WITHIN_SECONDS: Final = 20
LOAD_SECONDS: Final = 900.0
MODEL: Final = {"id": "Qwen/Qwen3.5-9B", "textOnly": True}
FAULTS: Final = {
    "down": "PrometheusUnreachable",
    "hang": "PrometheusUnreachable",
    "busy": "PrometheusUnreachable",
    "html": "AnswerInvalid",
    "error": "QueryRejected",
    "rejected": "QueryRejected",
    "auth": "PrometheusRefuses",
    "empty": "NoScrapeTarget",
    "nan": "MetricsInvalid",
    "inf": "MetricsInvalid",
    "old": "MetricsStale",
    "half": None,
    "partial": "PartialAnswer",
    "differ": None,
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Quick ticks, and a fleet that is let go after ten quiet seconds."""
    env = {
        "PLIMSOLL_METRICS_INTERVAL_SECONDS": str(TICK_SECONDS),
        "PLIMSOLL_PROMETHEUS_TIMEOUT_SECONDS": "3",
        "PLIMSOLL_SCALE_DOWN_SECONDS": "10",
    }
    with Lab(LabOptions(nodes=f"1*{H100}:8", load_seconds=0.5, operator_env=env)) as lab:
        yield lab


@pytest.fixture(scope="module")
def look(lab: Lab) -> Look:
    lab.plane.kubectl.make("namespace", "faults")
    eventually(lambda: lab.plane.kubectl("get", "serviceaccount", "default", "-n", "faults", "--ignore-not-found"))
    return Look(lab, "faults")


@pytest.fixture(scope="module")
def apply(lab: Lab, look: Look) -> Apply:
    return applier(lab.plane.kubectl, look.namespace)


@pytest.fixture(scope="module")
def fleets(lab: Lab, apply: Apply, look: Look) -> Iterator[Look]:
    """``busy`` needs both its replicas for the prompts it gets; ``rest`` has one that nobody asks."""
    apply("rest", scaling={"minReplicas": 1})
    apply("busy", scaling={"minReplicas": 1, "maxReplicas": 2}, contextTokens=32768)
    for name in ("rest", "busy"):
        look.until(name, "Ready", "True")
    assert lab.fleet is not None
    fleet = lab.fleet.fleet
    selector = {names.LABEL_SERVICE: "busy"}
    traffic = fleet.load(
        look.namespace, selector, rate=2.5, prompt_tokens=16000, output_tokens=30, seconds=LOAD_SECONDS
    )
    job = lab.fleet.submit(traffic)
    eventually(lambda: ready(look, "busy") == 2, within_seconds=60)
    look.until("busy", "MetricsAvailable", "True")
    yield look
    job.cancel()


def ready(look: Look, service: str) -> int:
    return int(look.get("deployments", service).get("status", {}).get("readyReplicas", 0))


def pods(look: Look) -> dict[str, tuple[str, int]]:
    """Every pod's uid and restarts."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        for pod in look.all("pods")
    }


def replicas(look: Look) -> dict[str, int]:
    return {name: look.get("deployments", name)["spec"]["replicas"] for name in ("rest", "busy")}


@pytest.mark.parametrize(("kind", "reason"), FAULTS.items())
def test_a_fault_of_prometheus_shrinks_and_restarts_nothing(
    lab: Lab, fleets: Look, kind: str, reason: str | None
) -> None:
    before = pods(fleets), replicas(fleets)
    lab.plane.fault_prometheus(kind)
    try:
        for name in ("rest", "busy") if reason else ():
            fleets.until(name, "MetricsAvailable", "False", reason)
        assert lab.operator is not None
        ticks = lab.operator.metric("plimsoll_sample_seconds_count")
        now = lab.operator.metric
        eventually(lambda: now("plimsoll_sample_seconds_count") >= ticks + 3, within_seconds=WITHIN_SECONDS)
        assert (pods(fleets), replicas(fleets)) == before
        assert fleets.condition("busy", "Ready")["status"] == "True"
    finally:
        lab.plane.fault_prometheus("none")
    for name in ("rest", "busy"):
        fleets.until(name, "MetricsAvailable", "True")
    assert (pods(fleets), replicas(fleets)) == before


@pytest.mark.parametrize(
    ("kind", "reason"), [("absent", "ScrapeFails"), ("nan", "MetricsInvalid"), ("stale", "MetricsStale")]
)
def test_a_pod_whose_metrics_are_gone_is_named(lab: Lab, fleets: Look, kind: str, reason: str) -> None:
    before = pods(fleets), replicas(fleets)
    (pod,) = (name for name in before[0] if name.startswith("rest-"))
    socket = lab.plane.workdir / SOCKET_NAME
    control.call(socket, "fault_metrics", namespace=fleets.namespace, name=pod, kind=kind)
    assert pod in fleets.until("rest", "MetricsAvailable", "False", reason)["message"]
    assert fleets.condition("busy", "MetricsAvailable")["status"] == "True"
    control.call(socket, "fault_metrics", namespace=fleets.namespace, name=pod, kind="none")
    fleets.until("rest", "MetricsAvailable", "True")
    assert (pods(fleets), replicas(fleets)) == before


@pytest.mark.parametrize("kind", ["old-names", "duplicate"])
def test_old_names_and_double_series_are_read_as_what_they_are(lab: Lab, fleets: Look, kind: str) -> None:
    (pod,) = (name for name in pods(fleets) if name.startswith("rest-"))
    socket = lab.plane.workdir / SOCKET_NAME
    control.call(socket, "fault_metrics", namespace=fleets.namespace, name=pod, kind=kind)
    try:
        assert lab.operator is not None
        now, ticks = lab.operator.metric, lab.operator.metric("plimsoll_sample_seconds_count")
        eventually(lambda: now("plimsoll_sample_seconds_count") >= ticks + 4, within_seconds=WITHIN_SECONDS)
        labels = f'{{namespace="{fleets.namespace}",service="rest"}}'
        assert now(f"plimsoll_service_metrics_complete{labels}") == 1
        assert fleets.condition("rest", "MetricsAvailable")["status"] == "True"
    finally:
        control.call(socket, "fault_metrics", namespace=fleets.namespace, name=pod, kind="none")


def test_what_is_seen_is_told_by_status_and_metrics(lab: Lab, fleets: Look) -> None:
    seen = fleets.observed("rest", "Idle")
    assert seen["kvTokensPerPod"] > 0
    assert seen["kvUsePercent"] == 0
    assert lab.operator is not None
    labels = f'namespace="{fleets.namespace}",service="rest"'
    assert lab.operator.metric(f'plimsoll_service_finding{{finding="Idle",{labels}}}') == 1


def test_what_pods_report_of_their_cache_enters_the_next_plan(lab: Lab, fleets: Look, apply: Apply) -> None:
    assert lab.operator is not None
    accurate = fleets.until("rest", "KVPredictionAccurate", "True", "Predicted")
    told = eventually(lambda: fleets.get("vllmservices", "rest")["status"]["observed"].get("pool"))
    plan = fleets.get("vllmservices", "rest")["status"]["plan"]
    assert told["key"] == plan["poolKey"]
    assert f"planned {plan['kv']['numBlocks']:,}" in accurate["message"]
    assert told["numBlocks"] != plan["kv"]["numBlocks"]
    # Another service of the same engine, after a restart: the status is where it was kept.
    lab.operator.stop()
    lab.operator.start()
    apply("next", scaling={"mode": "Fixed"}, replicas=0)
    planned = eventually(lambda: fleets.get("vllmservices", "next").get("status", {}).get("plan"))
    assert planned["kv"]["numBlocks"] == told["numBlocks"]
    assert fleets.condition("rest", "PlanUpdateAvailable")["status"] == "False"
