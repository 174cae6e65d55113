"""Whatever is given to the command line: an exit code of the contract, and never a traceback."""

import copy
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from plimsoll.cli.main import app
from tests.property.amount import examples
from tests.unit.cli.services import H100, service, written

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from([H100, "Qwen/Qwen3-8B", "2s", "--max-model-len", "=", "\u0000", "1e999", ".inf"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
PATHS = st.sampled_from(
    [
        ("kind",), ("metadata",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "annotations"),
        ("spec",), ("spec", "model"), ("spec", "model", "id"), ("spec", "model", "configRef"), ("spec", "hardware"),
        ("spec", "hardware", "gpus"), ("spec", "hardware", "maxGPUs"), ("spec", "contextTokens"), ("spec", "load"),
        ("spec", "slo"), ("spec", "engine"), ("spec", "engine", "extraArgs"), ("spec", "engine", "version"),
        ("spec", "engine", "image"), ("spec", "scaling"), ("spec", "tuning"), ("spec", "replicas"),
    ]
)  # fmt: skip


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A service, or a ConfigMap it refers to, with some fields replaced by anything."""
    manifest: dict[str, Any] = service(
        model={"id": "/models/x", "configRef": {"name": "c"}}, engine={"extraArgs": ["--max-num-seqs", "8"]}
    )
    for path in draw(st.lists(PATHS, min_size=1, max_size=3)):
        _replace(manifest, path, draw(VALUES))
    config = {"model_type": "qwen3", "num_hidden_layers": 4} | draw(
        st.dictionaries(st.sampled_from(["hidden_size", "num_attention_heads", "architectures", "head_dim"]), VALUES)
    )
    data = {"config.json": json.dumps(config)}
    config_map = {
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "llm"},
        "data": draw(st.just(data) | VALUES),
    }
    return yaml.safe_dump_all([config_map, manifest], allow_unicode=True).encode("utf-8", "surrogatepass")


def _replace(manifest: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    target = manifest
    for key in path[:-1]:
        inner = target.get(key)
        if not isinstance(inner, dict):
            return
        target = inner
    target[path[-1]] = value


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200).map(str.encode)
YAML_LIKE = st.lists(st.sampled_from([*"{}[]:,-&*!|>'\"%@#?\n\t ~ab1", "---\n", "kind: List\nitems: "]), max_size=60)
DOCUMENTS = (
    st.binary(max_size=600)
    | TEXTS
    | YAML_LIKE.map("".join).map(str.encode)
    | VALUES.map(lambda value: json.dumps(value).encode())
    | spoilt()
)


def answered(arguments: list[str], content: bytes) -> int:
    result = CliRunner().invoke(app, arguments, input=content)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in {0, 1, 2}
    assert "Traceback" not in result.stderr
    assert result.exit_code != 2 or result.stderr
    return result.exit_code


SLOW = settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))


@SLOW
@given(DOCUMENTS)
@example(b"kind: List\nitems: 3\n")
@example(b"&a [*a]\n")
@example(b"kind: VLLMService\nspec: &s {model: *s}\n")
@example(b"? {}\n: 1\n")
@example(b"2001-99-99: 1\n")
@example(b"a: 2001-13-45\n")
@example(b"[" * 5000)
@example(b"!!python/object/apply:os.system [true]\n")
@example(written(service("UPPER"), service(contextTokens=10**30)).encode())
def test_plan_answers_anything(content: bytes) -> None:
    answered(["plan", "-"], content)


@SLOW
@given(DOCUMENTS)
def test_diff_answers_anything(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    known = tmp_path_factory.getbasetemp() / "known.yaml"
    known.write_text(written(service()))
    answered(["diff", "-", str(known), "-o", "markdown"], content)


@SLOW
@given(st.binary(max_size=400), st.integers(0, 1500))
def test_a_spoilt_archive_is_answered(noise: bytes, at: int) -> None:
    text = written(service()).encode()
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        header = tarfile.TarInfo("deploy/a.yaml")
        header.size = len(text)
        archive.addfile(header, io.BytesIO(text))
    content = bytearray(whole.getvalue())
    content[at : at + len(noise)] = noise
    answered(["plan", "-"], bytes(content))


WORKLOADS = [
    document
    for file in sorted((Path(__file__).parents[2] / "examples" / "audit").rglob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    if isinstance(document, dict)
]


@st.composite
def spoilt_workloads(draw: st.DrawFn) -> bytes:
    """What people run, with some fields anywhere replaced by anything."""
    manifest = copy.deepcopy(draw(st.sampled_from(WORKLOADS)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(paths(manifest), key=str)))
        owner: Any = manifest
        for part in path[:-1]:
            owner = owner[part]
        owner[path[-1]] = draw(VALUES)
    return yaml.safe_dump(manifest, allow_unicode=True).encode("utf-8", "surrogatepass")


def paths(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a document."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in entries:
        yield (*at, key)
        yield from paths(child, (*at, key))


@SLOW
@given(DOCUMENTS | spoilt_workloads())
@example(b"kind: List\nitems: 3\n")
@example(b"kind: Deployment\nspec: &s {template: *s}\n")
@example(b"kind: Deployment\nmetadata: {name: [a]}\nspec: {template: {spec: {containers: [{args: 3}, 4, null]}}}\n")
def test_audit_and_import_answer_anything(content: bytes) -> None:
    answered(["audit", "-"], content)
    answered(["import", "-"], content)


@SLOW
@given(st.binary(max_size=400) | TEXTS)
def test_check_log_answers_anything(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    log = tmp_path_factory.getbasetemp() / "any.log"
    log.write_bytes(content)
    answered(["check-log", str(log)], b"")
