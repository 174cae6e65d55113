"""Fake GPU nodes under the real control plane: scheduling, probes, restarts, logs, drains and losses."""

import json
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.controlplane import ControlPlane
from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.eventually import eventually
from e2e.fleet import Fleet, control, parse_nodes
from e2e.fleet_thread import FleetThread

pytestmark = pytest.mark.controlplane

LOAD_SECONDS = 2.0
BACK_OFF_SCALE = 0.2
H100, L4 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"
QWEN = ["Qwen/Qwen3-8B", "--max-model-len", "32768", "--max-num-seqs", "64"]
MANAGED = {"app.kubernetes.io/managed-by": "plimsoll"}
Status = dict[str, Any]


@pytest.fixture(scope="module")
def control_socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet") / "fleet.sock"


@pytest.fixture(scope="module")
def fleet(control_plane: ControlPlane, control_socket: Path) -> Iterator[Fleet]:
    thread = FleetThread(
        lambda: Fleet(
            control_plane.admin_kubeconfig,
            parse_nodes(f"2*{H100}:8,2*{L4}:4"),
            load_seconds=LOAD_SECONDS,
            back_off_scale=BACK_OFF_SCALE,
            heartbeat_seconds=2.0,
            control_socket=control_socket,
        )
    )
    thread.start()
    yield thread.fleet
    thread.stop()


@pytest.fixture
def command(fleet: Fleet, control_socket: Path) -> Callable[..., Any]:
    """What another process would send to the fleet."""
    assert fleet
    return lambda do, /, **arguments: control.call(control_socket, do, **arguments)


def engine(args: list[str], *, gpu: str = H100, gpus: int = 1, **container: Any) -> Status:
    """A pod specification with one vLLM container, probed as the product probes."""
    health = {"httpGet": {"path": "/health", "port": "http"}}
    main = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": args,
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
        "startupProbe": health | {"periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": health | {"periodSeconds": 1, "failureThreshold": 2},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    selector = {"nvidia.com/gpu.product": gpu}
    return {"nodeSelector": selector, "terminationGracePeriodSeconds": 30, "containers": [main | container]}


def process(code: str, **container: Any) -> Status:
    """A pod specification whose container is a real Python process."""
    main = {"name": "main", "image": "process/python", "command": [sys.executable, "-u", "-c", code]}
    return {"containers": [main | container]}


def deployment(name: str, namespace: str, replicas: int, spec: Status) -> Status:
    labels = {"app": name, **MANAGED}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


class Pods:
    """Pods of one namespace, read through the API."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self._kubectl, self.namespace = kubectl, namespace

    def run(self, name: str, spec: Status) -> None:
        meta = {"name": name, "namespace": self.namespace, "labels": {"app": name, **MANAGED}}
        self._kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def status(self, name: str) -> Status:
        status: Status = self._kubectl.get("pod", name, "-n", self.namespace)["status"]
        return status

    def container(self, name: str) -> Status:
        container: Status = self.status(name)["containerStatuses"][0]
        return container

    def ready(self, name: str) -> bool:
        conditions = self.status(name).get("conditions", ())
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def await_ready(self, name: str) -> str:
        """The pod's base URL once it is Ready."""
        eventually(lambda: self.ready(name), within_seconds=60)
        return f"http://{self.status(name)['podIP']}:8000"

    def await_end(self, name: str, restarts: int = 1) -> Status:
        """The last termination once the container was started that often again."""
        eventually(lambda: self.restarts(name) >= restarts, within_seconds=60)
        container = self.container(name)
        ended: Status = container["state"].get("terminated") or container["lastState"]["terminated"]
        return ended

    def restarts(self, name: str) -> int:
        statuses = self.status(name).get("containerStatuses", ())
        return max((status["restartCount"] for status in statuses), default=-1)

    def waiting_for(self, name: str, reason: str) -> bool:
        statuses = self.status(name).get("containerStatuses", ())
        return any(status["state"].get("waiting", {}).get("reason") == reason for status in statuses)

    def logs(self, name: str, *options: str) -> str:
        return self._kubectl("logs", name, "-n", self.namespace, *options)

    def gone(self, name: str) -> bool:
        return not self._kubectl("get", "pod", name, "-n", self.namespace, "--ignore-not-found")

    def delete(self, name: str) -> None:
        self._kubectl("delete", "pod", name, "-n", self.namespace, "--wait=false")


@pytest.fixture
def pods(fleet: Fleet, kubectl: Kubectl, namespace: str) -> Pods:
    assert fleet
    return Pods(kubectl, namespace)


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def post(url: str, body: Status, timeout_seconds: float = 30) -> tuple[int, Status]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_deployment_becomes_ready_when_its_engines_have_loaded(
    control_plane: ControlPlane, kubectl: Kubectl, pods: Pods, namespace: str
) -> None:
    kubectl.apply(deployment("qwen", namespace, 3, engine(QWEN)))
    kubectl("rollout", "status", "deployment/qwen", "-n", namespace, "--timeout=60s")
    running = kubectl.get("pods", "-n", namespace)["items"]
    assert len({item["status"]["podIP"] for item in running}) == 3
    for item in running:
        assert item["spec"]["nodeName"].startswith("h100")
        name, address = item["metadata"]["name"], item["status"]["podIP"]
        assert get(f"http://{address}:8000/health")[0] == 200
        assert "GPU KV cache size:" in pods.logs(name)
    promql = f'vllm:kv_cache_usage_perc{{namespace="{namespace}"}}'
    names = {item["metadata"]["name"] for item in running}
    eventually(lambda: {s["metric"]["pod"] for s in control_plane.query(promql)} == names)


def test_the_port_is_closed_while_an_engine_loads(command: Callable[..., Any], pods: Pods) -> None:
    pods.run("slow", engine(QWEN))
    url = pods.await_ready("slow")
    command("fault_pod", namespace=pods.namespace, name="slow", kind="slow-load")
    eventually(lambda: pods.restarts("slow") == 1)
    eventually(lambda: pods.container("slow")["state"].get("running"))
    assert not pods.container("slow")["started"]
    with pytest.raises(urllib.error.URLError, match="Connection refused"):
        get(f"{url}/health")
    assert not pods.ready("slow")


def test_what_an_engine_serves(pods: Pods) -> None:
    pods.run("serve", engine([*QWEN, "--served-model-name", "qwen"]))
    url = pods.await_ready("serve")
    assert json.loads(get(f"{url}/v1/models")[1])["data"][0]["id"] == "qwen"
    assert json.loads(get(f"{url}/version")[1]) == {"version": "0.32.0"}
    status, answer = post(f"{url}/v1/completions", {"prompt": "a b c", "max_tokens": 5})
    assert (status, answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (200, 3, 5)
    status, answer = post(f"{url}/v1/completions", {"prompt": [1] * 40_000})
    assert status == 400
    assert "maximum context length is 32768" in answer["error"]["message"]


def test_load_reaches_ready_pods_and_shows_in_their_metrics(command: Callable[..., Any], pods: Pods) -> None:
    pods.run("loaded", engine(QWEN))
    url = pods.await_ready("loaded")
    asked = {"rate": 20, "prompt_tokens": 100, "output_tokens": 8, "seconds": 2}
    report = command("load", namespace=pods.namespace, selector={"app": "loaded"}, **asked)
    assert (report["sent"], report["succeeded"], report["failures"]) == (40, 40, {})
    assert report["ttftSeconds"]["p50"] > 0
    page = get(f"{url}/metrics")[1]
    assert 'vllm:request_success_total{engine="0",finished_reason="length",model_name="Qwen/Qwen3-8B"} 40.0' in page


def test_a_bad_flag_ends_in_a_crash_loop_that_says_why(pods: Pods) -> None:
    pods.run("flag", engine([*QWEN, "--no-such-flag"]))
    ended = pods.await_end("flag", restarts=2)
    assert (ended["exitCode"], ended["reason"]) == (2, "Error")
    assert "vllm: error: unrecognized arguments: --no-such-flag" in ended["message"]
    eventually(lambda: pods.waiting_for("flag", "CrashLoopBackOff"))
    assert "unrecognized arguments" in pods.logs("flag", "--previous")


def test_a_pool_too_small_is_refused_and_the_log_tail_hides_the_cause(pods: Pods) -> None:
    pods.run("small", engine(["Qwen/Qwen3-8B", "--max-num-seqs", "16"], gpu=L4))
    ended = pods.await_end("small")
    assert ended["exitCode"] == 1
    assert "Engine core initialization failed. See root cause above." in ended["message"]
    assert "To serve at least one request" not in ended["message"]
    assert "the estimated maximum model length is" in pods.logs("small", "--previous")


def test_a_missing_image_backs_off(pods: Pods) -> None:
    pods.run("image", engine(QWEN, image="vllm/vllm-openai:does-not-exist"))
    eventually(lambda: pods.waiting_for("image", "ImagePullBackOff"))
    assert pods.status("image")["phase"] == "Pending"


def test_an_out_of_memory_kill_shows_as_one(command: Callable[..., Any], pods: Pods) -> None:
    pods.run("oom", engine(QWEN))
    pods.await_ready("oom")
    command("fault_pod", namespace=pods.namespace, name="oom", kind="oom")
    ended = pods.await_end("oom")
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    pods.await_ready("oom")


def test_an_engine_that_dies_while_serving_ends_with_code_zero(command: Callable[..., Any], pods: Pods) -> None:
    pods.run("dies", engine(QWEN))
    pods.await_ready("dies")
    command("fault_pod", namespace=pods.namespace, name="dies", kind="crash")
    ended = pods.await_end("dies")
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")


def test_a_hanging_engine_loses_readiness_then_its_life(command: Callable[..., Any], pods: Pods) -> None:
    liveness = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1, "failureThreshold": 4}
    pods.run("hangs", engine(QWEN, livenessProbe=liveness | {"terminationGracePeriodSeconds": 1}))
    pods.await_ready("hangs")
    command("fault_pod", namespace=pods.namespace, name="hangs", kind="hang")
    eventually(lambda: not pods.ready("hangs"))
    assert pods.restarts("hangs") == 0
    pods.await_end("hangs")
    pods.await_ready("hangs")


def test_pre_stop_keeps_serving_and_draining_finishes_requests(pods: Pods) -> None:
    drained = [*QWEN, "--shutdown-timeout", "20"]
    pods.run("drain", engine(drained, lifecycle={"preStop": {"sleep": {"seconds": 3}}}))
    url = pods.await_ready("drain")
    ask = {"prompt": "a", "max_tokens": 400}
    with socket.create_connection((urllib.parse.urlsplit(url).hostname or "", 8000)) as connection:
        body = json.dumps(ask).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)
        pods.delete("drain")
        assert post(f"{url}/v1/completions", {"prompt": "in preStop", "max_tokens": 1})[0] == 200
        eventually(lambda: post(f"{url}/v1/completions", {"prompt": "late", "max_tokens": 1})[0] == 500)
        assert get(f"{url}/health")[0] == 200
        answer = connection.makefile("rb").read()
    assert b'"finish_reason": "length"' in answer
    eventually(lambda: pods.gone("drain"))


def test_who_ignores_sigterm_is_killed_after_the_grace_period(pods: Pods) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"
    never = {"tcpSocket": {"port": 9}, "periodSeconds": 1, "failureThreshold": 2, "terminationGracePeriodSeconds": 1}
    pods.run("deaf", process(deaf, livenessProbe=never))
    assert pods.await_end("deaf")["exitCode"] == 137


def test_a_real_process_has_the_pods_address_and_leaves_a_message(pods: Pods) -> None:
    code = (
        "import os, pathlib, time; print('at', os.environ['POD_IP'], flush=True); "
        "pathlib.Path(os.environ['TERMINATION_MESSAGE_PATH']).write_text('it is over'); raise SystemExit(5)"
    )
    pods.run("real", process(code) | {"restartPolicy": "Never"})
    eventually(lambda: pods.status("real").get("phase") == "Failed")
    ended = pods.container("real")["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (5, "it is over")
    assert pods.logs("real", "--follow").strip() == f"at {pods.status('real')['podIP']}"


def test_init_containers_and_sidecars_do_not_stand_in_the_way(pods: Pods) -> None:
    spec = engine(QWEN)
    spec["initContainers"] = [
        {"name": "download", "image": "tools"},
        {"name": "proxy", "image": "p", "restartPolicy": "Always"},
    ]
    probe = {"httpGet": {"path": "/", "port": 1}}
    spec["containers"].append({"name": "sidecar", "image": "registry/pause", "readinessProbe": probe})
    pods.run("many", spec)
    pods.await_ready("many")
    assert "taken as successful" in pods.logs("many", "-c", "sidecar")


def test_faulty_metrics(command: Callable[..., Any], pods: Pods) -> None:
    pods.run("metrics", engine(QWEN))
    page = f"{pods.await_ready('metrics')}/metrics"

    def after(kind: str) -> tuple[int, str]:
        command("fault_metrics", namespace=pods.namespace, name="metrics", kind=kind)
        return get(page)

    assert after("absent")[0] == 404
    assert "vllm:kv_cache_usage_perc{" not in after("old-names")[1]
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} NaN' in after("nan")[1]
    frozen = after("stale")[1]
    assert get(page)[1] == frozen
    assert "Qwen3-8B-duplicate" in after("duplicate")[1]
    assert after("none")[0] == 200


def test_a_lost_node_takes_its_pods_out_of_service(command: Callable[..., Any], kubectl: Kubectl, pods: Pods) -> None:
    pods.run("lost", engine(["Qwen/Qwen3-8B", "--max-model-len", "4096"], gpu=L4, gpus=4))
    url = pods.await_ready("lost")
    node = kubectl.get("pod", "lost", "-n", pods.namespace)["spec"]["nodeName"]
    command("fault_node", name=node, kind="down")
    with pytest.raises(urllib.error.URLError):
        get(f"{url}/health")
    eventually(lambda: not pods.ready("lost"), within_seconds=60)
    command("fault_node", name=node, kind="up")
    pods.await_ready("lost")
    assert pods.restarts("lost") == 1


def test_a_node_whose_gpus_fail_gets_no_new_pods(command: Callable[..., Any], kubectl: Kubectl, pods: Pods) -> None:
    command("fault_node", name="l4-1", kind="no-gpu")
    assert kubectl.get("node", "l4-1")["status"]["allocatable"]["nvidia.com/gpu"] == "0"
    command("fault_node", name="l4-1", kind="up")
    assert kubectl.get("node", "l4-1")["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert pods


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("fault_pod", {"namespace": "x", "name": "y", "kind": "crash"}, "pod x/y does not run on this fleet"),
        ("fault_pod", {"namespace": "x", "name": "y", "kind": "typo"}, "'typo' is not one of crash, oom"),
        ("fault_node", {"name": "nowhere", "kind": "down"}, "'nowhere' is not one of"),
    ],
)
def test_a_wrong_command_is_answered_with_the_reason(
    command: Callable[..., Any], name: str, arguments: dict[str, str], says: str
) -> None:
    with pytest.raises(control.ControlError, match=says):
        command(name, **arguments)


def test_logs_of_nobody(pods: Pods) -> None:
    with pytest.raises(KubectlError, match="not found"):
        pods.logs("nobody")
