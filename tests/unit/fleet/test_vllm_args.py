"""The fake engine reads its command line as recorded vLLM did."""

from typing import Any

import pytest

from e2e.fleet import recordings, vllm_args
from e2e.fleet.vllm import image_version, serve_args
from e2e.fleet.vllm_args import BadArgumentsError

PARSE_ERRORS = [case for case in recordings.refusals().values() if case["exit_code"] == 2]


@pytest.mark.parametrize("case", PARSE_ERRORS, ids=lambda case: str(case["case"]))
def test_a_command_line_that_vllm_refused_is_refused_in_its_words(case: dict[str, Any]) -> None:
    with pytest.raises(BadArgumentsError) as refused:
        vllm_args.parse(case["argv"][1:])
    assert list(refused.value.lines) == case["stderr_tail"][-2:]


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        pytest.param(["--max-model-len", "32k"], "max_model_len", 32_000, id="small suffix is decimal"),
        pytest.param(["--max-model-len", "32K"], "max_model_len", 32_768, id="large suffix is binary"),
        pytest.param(["--max-model-len", "auto"], "max_model_len", -1, id="auto length"),
        pytest.param(["--max_model_len=4096"], "max_model_len", 4096, id="underscores and equals sign"),
        pytest.param(["--kv-cache-memory-bytes", "1.5G"], "kv_cache_memory_bytes", 3 << 29, id="fraction of a suffix"),
        pytest.param(["--no-enable-prefix-caching"], "enable_prefix_caching", False, id="negative form"),
        pytest.param(["-tp", "4"], "tensor_parallel_size", 4, id="short name"),
        pytest.param(["--hf-overrides", '{"a": 1}'], "hf_overrides", {"a": 1}, id="JSON value"),
        pytest.param(["--served-model-name", "a", "b"], "served_model_name", ["a", "b"], id="several values"),
        pytest.param([], "gpu_memory_utilization", 0.92, id="default of 0.32"),
    ],
)
def test_values_are_converted_as_vllm_does(argv: list[str], name: str, value: object) -> None:
    assert vllm_args.parse(["some/model", *argv])[name] == value


def test_each_version_has_its_own_flags_and_defaults() -> None:
    assert vllm_args.parse(["m"], "0.16.0")["gpu_memory_utilization"] == 0.9
    assert vllm_args.parse(["m", "--swap-space", "4"], "0.16.0")["swap_space"] == 4
    with pytest.raises(BadArgumentsError, match="unrecognized arguments: --swap-space 4"):
        vllm_args.parse(["m", "--swap-space", "4"], "0.32.0")


@pytest.mark.parametrize(
    ("command", "args"),
    [
        pytest.param([], ["m", "--port", "80"], id="the image's entry point"),
        pytest.param(["vllm", "serve"], ["m", "--port", "80"], id="vllm serve"),
        pytest.param(["vllm", "serve", "m", "--port", "80"], [], id="all in the command"),
        pytest.param(["/bin/sh", "-c"], ["exec vllm serve m \\\n --port 80"], id="a shell line"),
        pytest.param(["python3", "-m", "vllm.entrypoints.openai.api_server"], ["m", "--port", "80"], id="the module"),
    ],
)
def test_the_engine_finds_its_arguments_in_any_container_command(command: list[str], args: list[str]) -> None:
    assert serve_args(command, args) == ["m", "--port", "80"]


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.32.0", "0.32.0"),
        ("r.example:5000/vllm/vllm-openai:v0.16.0", "0.16.0"),
        ("vllm/x", "0.32.0"),
    ],
)
def test_the_version_is_the_tag(image: str, version: str) -> None:
    assert image_version(image) == version
