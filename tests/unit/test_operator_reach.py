"""Where the operator itself reaches: what its ports answer, what code runs what, and what of a spec leads elsewhere."""

import ast
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from plimsoll import probes
from plimsoll.api.schema import resource_schema
from plimsoll.core.manifests import nodes

PACKAGE = Path(probes.__file__).parent
RUNS_CODE = {"eval", "exec", "compile", "__import__", "system", "popen", "Popen", "check_output", "check_call"}
SHELLS = {"subprocess", "os.system", "pty", "pickle", "shelve", "marshal"}


def _sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_nothing_starts_a_process_or_evaluates_a_text() -> None:
    """`re.compile` is the only compile there is."""
    found = []
    for path, tree in _sources():
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    found += [(path.name, each.name) for each in names if each.name in SHELLS]
                case ast.ImportFrom(module=str(module)) if module in SHELLS:
                    found.append((path.name, module))
                case ast.Call(func=ast.Name(id=name)) if name in RUNS_CODE:
                    found.append((path.name, name))
                case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id=owner))) if name in RUNS_CODE:
                    found += [] if owner == "re" else [(path.name, f"{owner}.{name}")]
    assert found == []


def test_format_strings_are_constants() -> None:
    """`text.format(...)` is called on constants and on tables of them; an f-string cannot be anything else."""
    calls = [
        (path.relative_to(PACKAGE).as_posix(), node.func)
        for path, tree in _sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    formats = {(path, ast.unparse(call.value)) for path, call in calls if call.attr in ("format", "format_map")}
    assert formats == {
        ("api/parse.py", "words"),  # a row of the table of pydantic's kinds of error
        ("core/plan/asked.py", "WARNING"),
        ("core/availability.py", "text"),  # a row of the table of causes
    }


def test_the_only_script_of_a_pod_is_a_constant() -> None:
    script = nodes._WAIT_FOR_LEADER
    assert [field for _, field, _, _ in string.Formatter().parse(script) if field] == []
    compile(script, "preStop", "exec")


def _names(schema: dict[str, Any], at: str = "spec") -> Iterator[str]:
    for name, child in schema.get("properties", {}).items():
        yield f"{at}.{name}"
        yield from _names(child, f"{at}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _names(schema[key], f"{at}[]")


def test_no_field_leads_to_an_address_or_another_namespace() -> None:
    """Pods may hold what they like; what the operator itself reads is named by the fields outside podTemplate."""
    fields = [name for name in _names(resource_schema()["properties"]["spec"]) if "podTemplate" not in name]
    words = ("url", "host", "address", "endpoint", "namespace", "proxy", "server")
    suspicious = {name for name in fields if any(word in name.rpartition(".")[2].lower() for word in words)}
    assert suspicious == {
        "spec.engine.kvOffload.hostMemory",  # an amount
        "spec.model.source.hostPath",  # only below what the owner allows
        "spec.drain.endpointDelay",  # a duration
        "spec.routing.endpointPicker",  # the name of a Service; the gateway asks it, not the operator
    }


@pytest.mark.parametrize(
    "path", ["/", "/debug", "/config", "/env", "/metrics/", "/healthz/../config", "/%2e%2e/etc/passwd"]
)
async def test_its_port_answers_three_questions_and_no_other(path: str) -> None:
    app = probes.application(lambda: None, lambda: None, CollectorRegistry(), lambda: None)
    answered = sorted(resource.canonical for resource in app.router.resources())
    assert answered == ["/healthz", "/metrics", "/readyz"]
    async with TestClient(TestServer(app)) as client:
        assert (await client.get(path)).status == 404
        for known in answered:
            assert (await client.post(known, data="x")).status == 405
