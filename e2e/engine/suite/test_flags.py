"""Every argument the planner can write is taken: by the installed engine's own parser, and by the recorded ones."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from e2e.engine.install import VERSION, Engine
from e2e.engine.tally import Tally
from e2e.fleet import vllm_args
from plimsoll.facts.engine_flags import releases
from tests.unit.core.manifests.emitted import emitted

PARSE: Final = Path(__file__).parents[1] / "inside" / "parse.py"


def _names(argv: tuple[str, ...]) -> set[str]:
    return {word for word in argv if word.startswith("--")}


@pytest.mark.parametrize("version", releases())
def test_a_recorded_parser_takes_what_is_written_for_its_release(version: str, tally: Tally) -> None:
    lines = [line for line in emitted() if line.version == version]
    for line in lines:
        vllm_args.parse(line.argv, version)
    tally.count("flags", version, len(set[str]().union(*(_names(line.argv) for line in lines))))


def test_the_engines_own_parser_takes_what_is_written_for_it(engine: Engine, tally: Tally) -> None:
    lines = [line for line in emitted() if line.version == VERSION]
    done = subprocess.run(
        [str(engine.python), str(PARSE)],
        input="".join(json.dumps(line.argv) + "\n" for line in lines),
        env={**os.environ, **engine.environment()},
        capture_output=True,
        text=True,
        check=True,
    )
    problems = [json.loads(said) for said in done.stdout.splitlines() if said.startswith('"')]
    assert len(problems) == len(lines), done.stdout
    assert {line: problem for line, problem in zip(lines, problems, strict=True) if problem} == {}
    tally.count("flags", "the installed parser", len(set[str]().union(*(_names(line.argv) for line in lines))))
