"""A running server as a service: which words come along, what is told apart, what a name and a size become."""

from collections.abc import Mapping
from typing import Any

import pytest

from plimsoll.core.adopt.arguments import _long_name, context_of, extra_arguments
from plimsoll.core.adopt.compare import differences, essential
from plimsoll.core.adopt.pod import _name_of, template_of
from plimsoll.core.adopt.service import adopt, service_name
from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.workloads.arguments import Arguments
from plimsoll.facts import engine_flags
from plimsoll.facts.engines import EngineVersion
from tests.unit.core.audit.deployments import ARGS, beside, deployment, judged

VERSION = EngineVersion.parse("0.32.0")
SIZES = ["--tensor-parallel-size", "1", "--max-num-seqs", "64", "--gpu-memory-utilization", "0.9"]


def evidence(
    *words: str, base: list[str] | None = None, beside_it: Mapping[str, Any] | None = None, **fields: Any
) -> Evidence:
    container = {"args": [*(ARGS if base is None else base), *words], **fields.pop("container", {})}
    [found] = judged(deployment(container=container, **fields), *([beside_it] if beside_it else []))
    return found.evidence


@pytest.mark.parametrize(
    ("words", "kept", "left"),
    [
        pytest.param([], [], [], id="port 8000 and the context go without saying"),
        pytest.param(["--port", "9000"], [], ["--port 9000"], id="another port does not"),
        pytest.param(["--dtype", "half"], ["--dtype", "half"], [], id="a flag as it is"),
        pytest.param(["--dtype=half"], ["--dtype", "half"], [], id="its value in a word of its own"),
        pytest.param(["--no-enable-prefix-caching"], ["--no-enable-prefix-caching"], [], id="a negative"),
        pytest.param(["--enable_prefix_caching"], ["--enable-prefix-caching"], [], id="hyphens"),
        pytest.param(["--enable-log-requests"], ["--enable-log-requests"], [], id="a switch"),
        pytest.param(["--api-key", "sk-1"], [], ["--api-key"], id="a secret is named without its value"),
        pytest.param(
            ["--max-num-batched-tokens", "$(N)"], [], ["--max-num-batched-tokens $(N)"], id="what is not in the files"
        ),
        pytest.param(["--no-such-flag", "1"], [], ["--no-such-flag 1"], id="what no release has"),
        pytest.param(["--compilation-config", '{"level": 3}'], ["--compilation-config", '{"level": 3}'], [], id="JSON"),
        pytest.param(["--compilation-config.level", "3"], ["--compilation-config.level", "3"], [], id="a key of it"),
    ],
)
def test_arguments_that_come_along(words: list[str], kept: list[str], left: list[str]) -> None:
    found, dropped = extra_arguments(evidence(*words), VERSION)
    extra = " ".join(found)
    assert not kept or " ".join(kept) in extra
    assert [each.what for each in dropped] == left
    assert "--port" not in found
    assert "--max-model-len" not in found


@pytest.mark.parametrize(
    ("base", "sizes"),
    [
        pytest.param(
            ["Qwen/Qwen3-8B"],
            ["--tensor-parallel-size", "1", "--max-num-seqs", "1024", "--gpu-memory-utilization", "0.92"],
            id="none is written",
        ),
        pytest.param(["Qwen/Qwen3-8B", *SIZES], [], id="all are"),
        pytest.param(
            ["Qwen/Qwen3-8B", "--kv-cache-memory-bytes", "9000000000", *SIZES[:4]], [], id="a pool instead of a share"
        ),
    ],
)
def test_sizes_that_the_engine_took_by_itself_are_written_out(base: list[str], sizes: list[str]) -> None:
    found, _ = extra_arguments(evidence(base=base), VERSION)
    assert found[len(found) - len(sizes) :] == sizes
    written = [
        word for word in found if word in {"--tensor-parallel-size", "--max-num-seqs", "--gpu-memory-utilization"}
    ]
    assert len(written) == len(set(written))


def test_names_of_a_flag() -> None:
    for written, name in (("-tp", "--tensor-parallel-size"), ("--no-enable-prefix-caching", "--enable-prefix-caching")):
        flag = engine_flags.find(written)
        assert flag is not None
        assert _long_name(flag) == name


@pytest.mark.parametrize(
    ("words", "limit", "found"),
    [
        pytest.param(["--max-model-len", "8192"], 40960, (8192, None), id="as written"),
        pytest.param(["--max-model-len", "1"], 40960, (1, None), id="a token"),
        pytest.param(["--max-model-len", "8k"], 40960, (8000, None), id="as the parser reads it"),
        pytest.param([], 40960, (40960, "no --max-model-len: the model's own limit"), id="nobody wrote it"),
        pytest.param(
            ["--max-model-len", "auto"], 40960, (40960, "no --max-model-len: the model's own limit"), id="whatever fits"
        ),
    ],
)
def test_where_the_context_comes_from(words: list[str], limit: int, found: tuple[int, str | None]) -> None:
    assert context_of(evidence(*words, base=["Qwen/Qwen3-8B"]), limit) == found


def test_a_context_that_does_not_fit_becomes_the_one_that_does() -> None:
    small = evidence(base=["Qwen/Qwen3-8B"], pod={"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}})
    tokens, word = context_of(small, 40960)
    assert tokens is not None
    assert 0 < tokens < 40960
    assert word == "no --max-model-len: the longest that fits"


def _compared(
    running: list[str], planned: list[str], dropped: Mapping[str, str] | None = None
) -> list[tuple[str, str, str]]:
    found = differences(Arguments(["Qwen/Qwen3-8B", *running]), ["m", *planned], dropped or {})
    return [(each.what, each.before, each.after) for each in found]


@pytest.mark.parametrize(
    ("running", "planned", "found"),
    [
        pytest.param(["--max-num-seqs", "64"], ["--max-num-seqs", "64"], [], id="the same"),
        pytest.param(["--max-model-len", "8k"], ["--max-model-len", "8000"], [], id="the same number"),
        pytest.param(
            ["--max-num-seqs", "64"], ["--max-num-seqs", "32"], [("--max-num-seqs", "64", "32")], id="another number"
        ),
        pytest.param([], ["--dtype", "auto"], [], id="what is so by default"),
        pytest.param([], ["--dtype", "half"], [("--dtype", "", "half")], id="what is not"),
        pytest.param(["--dtype", "half"], [], [("--dtype", "half", "")], id="what is gone"),
        pytest.param(["--enforce-eager"], ["--enforce-eager"], [], id="a switch"),
        pytest.param(
            ["--enable-prefix-caching"],
            ["--no-enable-prefix-caching"],
            [("--enable-prefix-caching", "on", "off")],
            id="a switch the other way round",
        ),
        pytest.param([], ["--served-model-name", "Qwen/Qwen3-8B"], [], id="its own name goes without saying"),
        pytest.param([], ["--served-model-name", "q"], [("--served-model-name", "", "q")], id="another one does not"),
        pytest.param(
            ["--served-model-name", "q"],
            ["--served-model-name", "Qwen/Qwen3-8B"],
            [("--served-model-name", "q", "Qwen/Qwen3-8B")],
            id="nor a change of it",
        ),
        pytest.param(["--api-key", "sk-1"], [], [("--api-key", "(a secret)", "")], id="a secret stays one"),
        pytest.param(["--dtype", "half"], ["--dtype", "8"], [("--dtype", "half", "8")], id="a word and a number"),
    ],
)
def test_what_differs(running: list[str], planned: list[str], found: list[tuple[str, str, str]]) -> None:
    assert _compared(running, planned) == found


def test_reasons_are_those_of_the_import_where_it_left_something_out() -> None:
    running = Arguments(["m", "--port", "9000", "--seed", "1", "--tensor-parallel-size", "2"])
    planned = ["m", "--tensor-parallel-size", "1", "--max-num-seqs", "8"]
    found = {each.what: each for each in differences(running, planned, {"--port 9000": "because"})}
    assert found["--port"].reason == "because"
    assert found["--seed"].reason == "the new engine's release has no such flag"
    assert found["--max-num-seqs"].reason.startswith("what the engine takes by itself")
    assert [each.what for each in essential(list(found.values()))] == ["--tensor-parallel-size"]


@pytest.mark.parametrize(
    ("folder", "served", "found"),
    [
        ("/models/Qwen3-8B", None, ("Qwen/Qwen3-8B", True)),
        ("/models/mine/", "org/mine", ("org/mine", False)),
        ("/models/mine", "mine-too", ("mine", False)),
        ("/models/mine", None, ("mine", False)),
    ],
)
def test_the_name_of_a_folder(folder: str, served: str | None, found: tuple[str, bool]) -> None:
    assert _name_of(folder, served) == found


@pytest.mark.parametrize(
    ("name", "suffix", "found"),
    [
        ("qwen", "-p", "qwen-p"),
        ("Qwen_3.8B", "-p", "qwen-3-8b-p"),
        ("8b", "-p", "v-8b-p"),
        ("---", "-p", "vllm-p"),
        ("a" * 60, "-p", "a" * 48 + "-p"),
        ("a" * 47 + "-b", "-p", "a" * 47 + "-p"),
    ],
)
def test_the_name_of_a_service(name: str, suffix: str, found: str) -> None:
    assert service_name(name, suffix) == found


def _spec(given: Evidence) -> dict[str, Any]:
    found = adopt(given, 40960, "-p")
    assert found.manifest is not None, found.problem
    spec: dict[str, Any] = found.manifest["spec"]
    return spec


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        pytest.param({"replicas": 3}, 3, id="as many as run"),
        pytest.param({"replicas": 3, "strategy": None}, 4, id="and one where the old one surges"),
        pytest.param({}, 1, id="one where nobody says"),
        pytest.param({"replicas": 0}, 1, id="one at least"),
    ],
)
def test_gpus_that_the_service_may_hold(spec: dict[str, Any], gpus: int) -> None:
    assert _spec(evidence(spec=spec))["hardware"]["maxGPUs"] == gpus


def test_an_autoscaler_keeps_the_count_and_its_most_is_allowed() -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "qwen"}
    scaler = beside("HorizontalPodAutoscaler", "qwen", spec={"scaleTargetRef": target, "maxReplicas": 5})
    spec = _spec(evidence(beside_it=scaler))
    assert (spec["scaling"], spec["hardware"]["maxGPUs"], "replicas" in spec) == ({"mode": "External"}, 5, False)


@pytest.mark.parametrize(
    ("image", "kept"),
    [
        pytest.param("vllm/vllm-openai:v0.32.0", None, id="the release's own"),
        pytest.param("docker.io/vllm/vllm-openai:v0.32.0", None, id="by its whole name"),
        pytest.param("mirror.example/vllm-openai:v0.32.0", "mirror.example/vllm-openai:v0.32.0", id="a mirror's"),
        pytest.param("vllm/vllm-openai:v0.32.0-cu130", "vllm/vllm-openai:v0.32.0-cu130", id="another build of it"),
        pytest.param("vllm/vllm-openai:latest", None, id="one that names no release"),
    ],
)
def test_the_image_is_kept_where_it_is_not_the_operators_own(image: str, kept: str | None) -> None:
    assert _spec(evidence(container={"image": image}))["engine"].get("image") == kept


def test_what_stands_around_the_engine_is_told() -> None:
    pod = {
        "initContainers": [{"name": "fetch", "image": "a"}],
        "affinity": {"nodeAffinity": {}},
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "pool": "a"},
    }
    template, left = template_of(evidence(pod=pod, env={"MINE": "1"}).server)
    assert template["spec"]["nodeSelector"] == {"pool": "a"}
    assert {"name": "MINE", "value": "1"} in template["spec"]["containers"][0]["env"]
    told = {each.what for each in left}
    assert {"init containers fetch", "affinity of the pod"} <= told
    plain = {each.what for each in template_of(evidence().server)[1]}
    assert not plain & {"init containers fetch", "affinity of the pod", "containers "}
