"""One engine over several nodes: the pod of one node → the leader's and the workers' (docs/adr, multi-node).

vLLM 0.12 and newer spans nodes by itself (multiprocessing; ``--nnodes``, ``--node-rank``, ``--master-addr``): every
node gets the same arguments, node 0 serves, the others run ``--headless``. Data-parallel ranks follow from the node's
rank. Source: vLLM 0.12 to 0.32, ``engine/arg_utils.py`` and ``entrypoints/cli/serve.py``.

LeaderWorkerSet puts ``LWS_LEADER_ADDRESS`` and ``LWS_WORKER_INDEX`` into every container of a group.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.core.manifests.container import CONTAINER, HTTP_PORT
from plimsoll.core.manifests.identity import worker_labels
from plimsoll.core.plan.release import rules_of
from plimsoll.facts import engine_flags
from plimsoll.facts.engines import EngineVersion

_ADDRESS: Final = "VLLM_HOST_IP"
_COMMAND: Final = ("vllm", "serve")
"""Images before 0.12 start another module, which knows no ``--headless``; own images may as well."""
_NOT_HEADLESS: Final = ("api_server_count",)
"""A node that serves nothing refuses these."""
_SERVING: Final = ("ports", "startupProbe", "readinessProbe", "livenessProbe")
_WAIT_FOR_LEADER: Final = (
    "import os, socket, time\n"
    "while True:\n"
    "    try:\n"
    f"        socket.create_connection((os.environ['LWS_LEADER_ADDRESS'], {HTTP_PORT}), 2).close()\n"
    "    except OSError:\n"
    "        break\n"
    "    time.sleep(1)\n"
)

Manifest = dict[str, Any]


@dataclass(frozen=True)
class NodeTemplates:
    """Pod templates of one replica: of the node that leads and serves, and of the others where there are any."""

    leader: Mapping[str, Any]
    worker: Mapping[str, Any] | None


def first_release() -> str:
    """The first recorded release of vLLM that spans nodes by itself; those before need a Ray cluster."""
    flag = engine_flags.find("--nnodes")
    return engine_flags.releases()[flag.seen[0] if flag else -1]


def spans_nodes(version: str) -> bool:
    """Whether this release of vLLM spans nodes without Ray."""
    return rules_of(version) >= EngineVersion.parse(first_release())


def node_templates(template: Mapping[str, Any], service: str, nodes: int) -> NodeTemplates:
    """Leader and worker of a replica that spans ``nodes`` nodes. ``template``: the pod of one of them."""
    return NodeTemplates(_leader(template, nodes), _worker(template, service, nodes))


def _leader(template: Mapping[str, Any], nodes: int) -> Manifest:
    """It names itself by its address: what it binds must not depend on a name that is not served yet."""
    return _with_engine(template, lambda engine: _joined(engine, engine["args"], nodes, "0", f"$({_ADDRESS})"))


def _worker(template: Mapping[str, Any], service: str, nodes: int) -> Manifest:
    """Serves nothing, so nothing is probed; its labels keep it out of every selector that means replicas."""
    spread = "topologySpreadConstraints"
    made = _with_engine(template, lambda engine: _headless(engine, nodes))
    spec = {key: value for key, value in made["spec"].items() if key != spread}
    labels = {**made["metadata"]["labels"], **worker_labels(service)}
    return {**made, "metadata": {**made["metadata"], "labels": labels}, "spec": spec}


def _headless(engine: Mapping[str, Any], nodes: int) -> Manifest:
    args = [*_without(engine["args"], _NOT_HEADLESS), "--headless"]
    joined = _joined(engine, args, nodes, "$(LWS_WORKER_INDEX)", "$(LWS_LEADER_ADDRESS)")
    kept = {key: value for key, value in joined.items() if key not in _SERVING}
    # The leader drains with every node's help: one that is evicted waits until the leader's port closes.
    return {**kept, "lifecycle": {"preStop": {"exec": {"command": ["python3", "-c", _WAIT_FOR_LEADER]}}}}


def _joined(engine: Mapping[str, Any], args: Sequence[str], nodes: int, rank: str, leader: str) -> Manifest:
    address = {"name": _ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    env = [entry for entry in engine.get("env") or () if entry["name"] != _ADDRESS]
    return {
        **engine,
        "command": engine.get("command") or list(_COMMAND),
        "args": [*args, "--nnodes", str(nodes), "--node-rank", rank, "--master-addr", leader],
        "env": [*env, address],
    }


def _with_engine(template: Mapping[str, Any], change: Any) -> Manifest:  # noqa: ANN401 - a function of one container
    spec = template["spec"]
    containers = [change(c) if c["name"] == CONTAINER else c for c in spec["containers"]]
    return {**template, "spec": {**spec, "containers": containers}}


def _without(args: Sequence[str], dests: Sequence[str]) -> Iterator[str]:
    """The arguments without these flags and their values."""
    dropping = False
    for arg in args:
        if arg.startswith("-"):
            flag = engine_flags.find(arg.partition("=")[0])
            dropping = flag is not None and flag.dest in dests
        if not dropping:
            yield arg
