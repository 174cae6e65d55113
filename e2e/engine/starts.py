"""Starts of the real engine, one after another in processes that import vLLM once (`inside/starts.py`)."""

import json
import os
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from e2e.controlplane import tether
from e2e.engine.cases import Case
from e2e.engine.install import Engine

SCRIPT: Final = Path(__file__).absolute().parent / "inside" / "starts.py"
AT_ONCE: Final = 2
# Each in one process, and without threads that would be lost in a fork.
ENVIRONMENT: Final = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Outcome:
    """What one start did: a pool with its figures, or an error; and what it printed."""

    pool: Mapping[str, Any] | None
    error: str
    log: str

    @property
    def whole_log(self) -> str:
        """With the error in its place: a server's log ends with it."""
        return f"{self.log}\n{self.error}"


class Starts:
    """Outcomes by case; each is waited for when it is asked for."""

    def __init__(self, answering: Sequence[tuple[Collection[str], IO[str]]]) -> None:
        """`answering`: the cases that a process was given, and where it answers, in their order."""
        self._lines = {case: lines for given, lines in answering for case in given}
        self._seen: dict[str, Outcome] = {}

    def outcome(self, case: Case) -> Outcome:
        while case.id not in self._seen:
            line = self._lines[case.id].readline()
            assert line, f"the engine's process ended before {case.id}"
            found = json.loads(line)
            self._seen[found["id"]] = Outcome(found.get("pool"), found.get("error", ""), found["log"])
        return self._seen[case.id]


@contextmanager
def starting(engine: Engine, models: Path, cases: Iterable[Case], scratch: Path) -> Iterator[Starts]:
    """Have the engine start as each case says, two side by side; ends with the block, finished or not."""
    listed = list(cases)
    shares = [share for share in (listed[at::AT_ONCE] for at in range(AT_ONCE)) if share]
    with ExitStack() as stack:
        answers = [
            stack.enter_context(_process(engine, models, share, scratch / f"{at}")) for at, share in enumerate(shares)
        ]
        yield Starts([([case.id for case in share], lines) for share, lines in zip(shares, answers, strict=True)])


@contextmanager
def _process(engine: Engine, models: Path, cases: Sequence[Case], scratch: Path) -> Iterator[IO[str]]:
    scratch.mkdir()
    listed = scratch / "cases.jsonl"
    listed.write_text("".join(json.dumps(_row(case)) + "\n" for case in cases))
    command = tether.command([str(engine.python), str(SCRIPT), str(models)])
    env = {**os.environ, **engine.environment(), **ENVIRONMENT}
    with listed.open() as stdin, (scratch / "stderr.log").open("w") as stderr:
        process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, env=env, text=True)
        assert process.stdout
        try:
            yield process.stdout
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _row(case: Case) -> dict[str, Any]:
    return {"id": case.id, "model": case.model, "argv": case.argv, "env": dict(case.env)}
