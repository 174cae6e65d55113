"""``plimsoll explain`` against an API server that answers what it is told: words, exit codes, nearest names."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from plimsoll.api import names
from plimsoll.cli.main import app
from plimsoll.cli.planning import plan_files
from plimsoll.core.conditions import Facts, Fleet, Problem, decide, merge
from plimsoll.core.experiment import Proposal, begin
from plimsoll.core.experiment_record import Record
from plimsoll.core.loan import Loan
from tests.unit.cli.services import service, written

SERVICES = "/apis/plimsoll.dev/v1alpha1/namespaces/llm/vllmservices"
NOW = "2026-01-01T00:00:00Z"


@contextmanager
def api_server(answers: Mapping[str, Any]) -> Iterator[str]:
    """The address of a server with one JSON answer a path; a number is an error of that status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0], 404)
            status = answer if isinstance(answer, int) else 200
            body = json.dumps({"message": f"status {status}"} if isinstance(answer, int) else answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the test's output quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def kubeconfig(folder: Path, address: str, namespace: str = "llm") -> str:
    path = folder / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": address}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": namespace}}
    users = [{"name": "u", "user": {}}]
    config = {"clusters": [cluster], "contexts": [context], "users": users, "current-context": "x"}
    path.write_text(yaml.safe_dump(config))
    return str(path)


def explain(folder: Path, answers: Mapping[str, Any], *arguments: str, namespace: str = "llm") -> Result:
    with api_server(answers) as address:
        environment = {"KUBECONFIG": kubeconfig(folder, address, namespace)}
        result = CliRunner().invoke(app, ["explain", *arguments], env=environment)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def live(folder: Path, facts: Facts, **status: Any) -> dict[str, Any]:
    """A service as the operator would report it."""
    path = folder / "service.yaml"
    path.write_text(written(service()))
    plan = plan_files([str(path)]).planned[0].result()
    conditions = merge((), decide(facts), 1, NOW)
    reported = {"observedGeneration": 1, "conditions": conditions, "plan": plan, **status}
    return {**service(), "metadata": {"name": "docs", "namespace": "llm", "generation": 1}, "status": reported}


READY = Facts(planned="1 x H100", fleet=Fleet(wanted=1, floor=1, replicas=1, ready=1, updated_ready=1, rolled_out=True))


def test_a_service_that_is_well_is_told_in_full(tmp_path: Path) -> None:
    decision = {"time": NOW, "kind": "Scale", "from": "1", "to": "2", "reason": "Demand", "message": "24 requests"}
    observed = {
        "kvTokensPerPod": 400_000,
        "kvUsePercent": 98,
        "bottleneck": "KVBound",
        "evidence": "9 wait",
        "since": NOW,
    }
    obj = live(tmp_path, READY, replicas=1, readyReplicas=1, observed=observed, decisions=[decision])
    result = explain(tmp_path, {f"{SERVICES}/docs": obj}, "docs")
    assert result.exit_code == 0
    for words in (
        "llm/docs (Qwen/Qwen3-8B): ready: 1 of 1 replicas ready",
        "Memory of the fullest GPU",
        "vllm serve Qwen/Qwen3-8B",
        "1 ready of 1",
        "400,000 (planned for an engine:",
        "KVBound",
        f"Since {NOW}: 9 wait",
        "What to do: More replicas, or more KV cache a replica",
        "98 %",
        "1 -> 2",
        "24 requests",
    ):
        assert words in result.stdout
    assert "Needs attention" not in result.stdout
    assert "KV tokens needed  unknown" in result.stdout


def test_what_needs_attention_comes_with_its_runbook_once(tmp_path: Path) -> None:
    facts = Facts(refusal=Problem("KVCacheTooSmall", "9.1 GiB are needed"))
    obj = live(tmp_path, facts)
    obj["status"]["plan"] = {"nearest": [{"change": "contextTokens: 2 -> 1", "message": "TP 1"}]}
    result = explain(tmp_path, {f"{SERVICES}/docs": obj}, "docs")
    assert result.exit_code == 0
    assert "Ready False, Stalled True, Planned False" in result.stdout
    assert "What to do: Apply one of status.plan.nearest" in result.stdout
    assert "contextTokens: 2 -> 1" in result.stdout
    assert names.SLO_MET in result.stdout.split("not known yet")[1]


def test_json_is_for_scripts(tmp_path: Path) -> None:
    result = explain(tmp_path, {f"{SERVICES}/docs": live(tmp_path, READY)}, "docs", "-o", "json")
    told = json.loads(result.stdout)
    assert (told["service"], told["bottleneck"], told["attention"]) == ("llm/docs", "unknown", [])


def test_an_object_nobody_looked_at_yet_is_said(tmp_path: Path) -> None:
    result = explain(tmp_path, {f"{SERVICES}/docs": service()}, "docs")
    assert result.exit_code == 0
    assert "the operator has not looked at it yet" in result.stdout


def test_a_status_behind_the_spec_is_said(tmp_path: Path) -> None:
    obj = live(tmp_path, READY)
    obj["metadata"]["generation"] = 7
    assert "the spec is at 7" in explain(tmp_path, {f"{SERVICES}/docs": obj}, "docs").stdout


def test_a_status_of_another_form_is_named_not_traced(tmp_path: Path) -> None:
    obj = live(tmp_path, READY)
    obj["status"]["plan"]["choice"].pop("gpusPerReplica")
    result = explain(tmp_path, {f"{SERVICES}/docs": obj}, "docs")
    assert result.exit_code == 2
    assert "status.plan.choice.gpusPerReplica" in result.stderr


def test_the_namespace_of_the_option_wins_over_the_context(tmp_path: Path) -> None:
    answers = {f"{SERVICES}/docs": live(tmp_path, READY)}
    assert explain(tmp_path, answers, "docs", "-n", "llm", namespace="other").exit_code == 0


@pytest.mark.parametrize(
    ("there", "said"),
    [
        pytest.param(["docs", "chat"], "nearest: docs", id="a near name"),
        pytest.param(["chat"], "there are: chat", id="only others"),
        pytest.param([], "name another namespace with -n", id="nothing"),
    ],
)
def test_no_such_service_is_exit_2_with_the_nearest(tmp_path: Path, there: list[str], said: str) -> None:
    listed = {"items": [{"metadata": {"name": name}} for name in there], "metadata": {}}
    result = explain(tmp_path, {SERVICES: listed}, "docz")
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        pytest.param({}, "plimsoll crd | kubectl apply", id="the kind is not installed"),
        pytest.param({f"{SERVICES}/docs": 403}, "403", id="forbidden"),
        pytest.param({f"{SERVICES}/docs": 503}, "503", id="overloaded"),
    ],
)
def test_a_cluster_that_cannot_answer_is_exit_3(tmp_path: Path, answers: dict[str, Any], said: str) -> None:
    result = explain(tmp_path, answers, "docs")
    assert result.exit_code == 3
    assert said in result.stderr


def test_an_unreachable_cluster_is_exit_3_with_a_sentence(tmp_path: Path) -> None:
    with api_server({}) as address:
        gone = kubeconfig(tmp_path, address)
    result = CliRunner().invoke(app, ["explain", "docs"], env={"KUBECONFIG": gone})
    assert result.exit_code == 3
    assert "no answer from the API server" in result.stderr


def test_no_credentials_is_exit_3(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["explain", "docs"], env={"KUBECONFIG": str(tmp_path / "none")})
    assert result.exit_code == 3
    assert "no usable Kubernetes credentials" in result.stderr


def ledger_line(service: str, **entry: Any) -> str:
    """A line of the operator's log, as ``kubectl logs --prefix`` shows it."""
    told = {"time": NOW, "kind": "Scale", "from": "0", "to": "1", "reason": "Woken", "message": "m", **entry}
    line = {"time": NOW, "logger": "plimsoll.ledger", "service": service, "event": "ledger", "entry": told}
    return f"[pod/plimsoll-1/operator] {json.dumps(line)}"


WAKES = {"law": "wake", "requests": 3.0}
WOKEN = "3 requests wait at the gateway"


def test_history_of_a_log_is_in_order_and_made_again(tmp_path: Path) -> None:
    later = ledger_line("llm/docs", message=WOKEN, grounds=WAKES, time="2026-01-02T00:00:00Z", alternatives=["0: no"])
    earlier = ledger_line("llm/docs", kind="Plan", reason="FirstPlan", message="1 x H100", **{"from": None})
    other = ledger_line("llm/other", message="elsewhere")
    log = tmp_path / "ops.log"
    log.write_text("\n".join(["\x00binary", later, '{"event": "ledger"}', later, other, earlier, "{broken ledger"]))
    result = CliRunner().invoke(app, ["explain", "docs", "--history", "--from", str(log)])
    assert result.exit_code == 0, result.output
    assert result.stdout.index("FirstPlan") < result.stdout.index(WOKEN)
    assert result.stdout.count(WOKEN) == 1
    assert "instead: 0: no" in result.stdout
    assert "1 of 1 recorded decisions come out the same" in result.stdout
    assert "elsewhere" not in result.stdout
    everything = CliRunner().invoke(app, ["explain", "--history", "--from", str(log), "-o", "json"])
    assert [each["service"] for each in json.loads(everything.stdout)] == ["llm/other", "llm/docs", "llm/docs"]


def test_a_decision_that_comes_out_otherwise_is_said(tmp_path: Path) -> None:
    log = tmp_path / "ops.log"
    log.write_text(ledger_line("llm/docs", message="5 requests wait at the gateway", to="2", grounds=WAKES))
    result = CliRunner().invoke(app, ["explain", "--history", "--from", str(log)])
    assert result.exit_code == 1
    assert f"made again: 1 {WOKEN}" in result.stdout


@pytest.mark.parametrize(
    ("content", "arguments", "says"),
    [
        ("no JSON at all\n\x00\x01", [], "no entry of the ledger"),
        ("a: {b: [", [], "no entry of the ledger"),
        pytest.param("ledger " + "{" * 50_000, [], "no entry of the ledger", id="deep YAML"),
        pytest.param('ledger {"a":' + "[" * 50_000, [], "no entry of the ledger", id="deep JSON"),
        (ledger_line("llm/docs"), ["other"], "it has llm/docs"),
        (None, [], "No such file"),
    ],
)
def test_a_file_without_a_history_is_named(
    tmp_path: Path, content: str | None, arguments: list[str], says: str
) -> None:
    log = tmp_path / "ops.log"
    if content is not None:
        log.write_text(content)
    result = CliRunner().invoke(app, ["explain", *arguments, "--history", "--from", str(log)])
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize("arguments", [[], ["--history"], ["docs", "--from", "x"]])
def test_what_to_explain_must_be_said(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["explain", *arguments])
    assert result.exit_code == 2
    assert "--history" in result.stderr


def test_history_of_a_live_service_joins_what_it_still_knows(tmp_path: Path) -> None:
    decision = {"time": "2026-01-03T00:00:00Z", "kind": "Retune", "reason": "Kept", "message": "quicker"}
    ended = {"flag": "--max-num-seqs", "from": "32", "to": "64", "basis": "b"}
    past = [
        {"time": "2026-01-02T00:00:00Z", "outcome": "rolled back", "why": "worse", **ended},
        {"time": "2026-01-03T00:00:02Z", "outcome": "kept", "why": "quicker", **ended},
    ]
    obj = live(tmp_path, READY, decisions=[decision], tuning={"past": past})
    plan = {
        "choice": {"gpusPerReplica": 1, "gpu": "H100", "tensorParallel": 1},
        "kv": {"tokens": 9, "maxConcurrency": 2},
    }
    data = {"fingerprint": "f", "plan": plan, "template": {}, "loadSeconds": 1}
    learned = {"correction": {"because": "1 GiB was missing"}}
    meta = {"labels": {names.LABEL_SERVICE: "docs"}, "creationTimestamp": NOW}
    revisions = [
        {"metadata": {**meta, "name": "docs-b"}, "revision": 2, "data": {**data, "learned": learned}},
        {"metadata": {**meta, "name": "docs-a"}, "revision": 1, "data": data},
    ]
    kept = "/apis/apps/v1/namespaces/llm/controllerrevisions"
    answers = {f"{SERVICES}/docs": obj, kept: {"items": revisions, "metadata": {}}}
    result = explain(tmp_path, answers, "docs", "--history", "-o", "json")
    assert result.exit_code == 0, result.output
    told = [(each["kind"], each["reason"], each.get("to")) for each in json.loads(result.stdout)]
    assert told == [
        ("Plan", "Kept", "docs-a"),
        ("Correction", "EngineFigures", None),
        ("Plan", "Kept", "docs-b"),
        ("Retune", "RolledBack", "--max-num-seqs 64"),
        ("Retune", "Kept", None),
    ]
    alone = explain(tmp_path, {**answers, kept: 403}, "docs", "--history")
    assert alone.exit_code == 0
    assert "plans are left out" in alone.stderr
    assert "quicker" in alone.stdout


def test_an_experiment_on_lent_replicas_says_what_is_lent(tmp_path: Path) -> None:
    tried = Proposal("MaxNumSeqs", "--max-num-seqs", "32", "64", "ttft", "SequenceCapBound", "41 wait", "basis")
    record = Record(begin(tried, "docs-a", 1_800_000_000.0, lent=True), loan=Loan(2, 5))
    obj = live(tmp_path, READY, tuning=record.written())
    result = explain(tmp_path, {f"{SERVICES}/docs": obj}, "docs")
    assert result.exit_code == 0, result.output
    assert "--max-num-seqs 32 -> 64: Draining" in result.stdout
    assert result.stdout.count("2 of 5 replicas lent") == 1


def test_load_and_step_times_are_told_beside_what_was_declared(tmp_path: Path) -> None:
    figures = {"concurrency": {"declared": 8, "observed": 40, "counts": 38}, "promptTokens": {"observed": 4100}}
    days = [{"date": "2026-11-29", "requests": 10_000, "hours": 21, "promptTokens": 4100}]
    observed = {"bottleneck": "Idle", "stepTimes": {"key": "k", "factor": 1.2}}
    obj = live(tmp_path, READY, observed=observed, load={"figures": figures, "days": days})
    shown = explain(tmp_path, {f"{SERVICES}/docs": obj}, "docs").stdout
    for words in (
        "declared 8, observed 40: counts 38",
        "observed 4,100: not counted",
        "10,000 requests at least, watched 21 h",
        "1.2 of what was predicted",
    ):
        assert words in shown
    told = json.loads(explain(tmp_path, {f"{SERVICES}/docs": obj}, "docs", "-o", "json").stdout)
    assert told["load"]["figures"] == figures
