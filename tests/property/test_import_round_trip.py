"""The manifests that Plimsoll itself renders, imported, give the plan that they were made from."""

from collections.abc import Mapping
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plimsoll.cli.adopt import imported
from plimsoll.cli.audit_result import Options
from plimsoll.cli.fleets import fleet_of
from plimsoll.cli.planning import Planned, plan_manifest
from plimsoll.cli.workload_files import Found, Reading
from plimsoll.cli.yaml_documents import Place
from plimsoll.core.plan.result import Plan
from plimsoll.core.workloads.arguments import Arguments
from tests.unit.cli.services import service

MODELS = st.sampled_from(
    ["Qwen/Qwen3-8B", "Qwen/Qwen3.5-9B", "openai/gpt-oss-20b", "google/gemma-3-12b-it", "Qwen/Qwen3-32B"]
)
GPUS = st.sampled_from(["NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H200"])
OWN = st.lists(
    st.sampled_from(
        ["--enforce-eager", "--seed=7", "--kv-cache-dtype=fp8", "--max-num-seqs=32", "--no-enable-prefix-caching"]
    ),
    unique=True,
    max_size=3,
)
SERVICES = st.builds(
    lambda model, gpu, context, version, own, replicas: service(
        model={"id": model}, hardware={"gpu": gpu}, contextTokens=context, replicas=replicas,
        scaling={"mode": "Fixed"}, engine={"version": version, "extraArgs": own},
    ),
    MODELS, GPUS, st.sampled_from([4096, 16384, 32768]),
    st.sampled_from(["0.22.1", "0.28.0", "0.32.0"]), OWN, st.integers(1, 2),
)  # fmt: skip


@given(SERVICES)
@settings(max_examples=40, deadline=None)
def test_the_same_plan_comes_back(manifest: Mapping[str, Any]) -> None:
    first = plan_manifest(manifest, None, {})
    assume(isinstance(first.outcome, Plan) and first.outcome.choice.nodes_per_replica == 1)
    fleet = fleet_of(first)
    assert fleet is not None
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": first.name, "namespace": first.namespace},
        "spec": {"replicas": fleet.pods, "selector": {"matchLabels": {"a": "b"}}, "template": fleet.template},
    }
    reading = Reading([Found(deployment, Place("deployment.yaml", 0, None))])
    [again], _ = imported(reading, Options(), "-new")
    assert again.planned is not None, again.adopted.problem
    assert flags(again.planned) == flags(first), again.adopted.manifest
    assert [each for each in again.differences if each.before and each.after] == []


def flags(planned: Planned) -> dict[str, Any]:
    """What a plan gives the engine, and on what."""
    assert isinstance(planned.outcome, Plan), planned.outcome
    choice = planned.outcome.choice
    given_flags = {dest: use.value for dest, use in Arguments(choice.args, positional_model=False).by_dest.items()}
    return {**given_flags, "gpu": choice.gpu, "gpus": choice.gpus_per_replica, "version": choice.engine_version}
