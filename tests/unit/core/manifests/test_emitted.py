"""Every argument that the planner can write is one that the release's own parser takes."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from e2e.fleet import vllm_args
from plimsoll.core import flags
from plimsoll.core.manifests import nodes
from plimsoll.core.plan import features
from plimsoll.facts import engines
from tests.unit.core.manifests.emitted import SERVICES, emitted

WRITERS = (flags, features, nodes)
"""Modules that write arguments. What only appears in them to be left out or read is named below."""
_READ_ONLY = {"--port", "--host"}


@pytest.mark.parametrize("version", engines.RECORDED)
def test_the_releases_parser_takes_every_command_line(version: str) -> None:
    lines = [line for line in emitted() if line.version == version]
    assert len(lines) >= len(SERVICES) - 4, "a release that runs hardly anything"
    for line in lines:
        parsed = vllm_args.parse(line.argv, version)
        assert parsed.model == line.argv[0], line
        assert parsed["max_model_len"], line


def test_no_argument_is_written_that_these_services_do_not_have() -> None:
    """What the code can write and these services do not is checked by nobody."""
    written = {word for line in emitted() for word in line.argv if word.startswith("--")}
    assert {name for module in WRITERS for name in _literals(module)} - _READ_ONLY <= written


def _literals(module: ModuleType) -> Iterator[str]:
    assert module.__file__
    for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
            yield node.value
