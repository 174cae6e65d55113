"""The real engine, the tiny models and the starts that a run of the suite asks for; the line that sums it up."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from e2e.engine import install, models
from e2e.engine.cases import Case
from e2e.engine.install import Engine
from e2e.engine.preloaded import preloaded
from e2e.engine.starts import Starts, starting
from e2e.engine.tally import Tally

TALLY: Final = pytest.StashKey[Tally]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = Tally()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(f"vLLM {install.VERSION}: {config.stash[TALLY] or 'nothing was compared'}")


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """What has been compared so far; a test adds to it when it has compared."""
    return request.config.stash[TALLY]


@pytest.fixture(scope="session")
def engine() -> Engine:
    return install.ensure(print)


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    models.write(folder)
    return folder


@pytest.fixture(scope="session")
def vllm(engine: Engine, tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """The command of a preloaded engine."""
    with preloaded(engine, tiny_models, tmp_path_factory.mktemp("preloaded")) as command:
        yield command


@pytest.fixture(scope="session")
def starts(
    request: pytest.FixtureRequest, engine: Engine, tiny_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Starts]:
    """Of the selected tests' cases only."""
    wanted = (
        item.callspec.params.get("case")
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    )
    cases = [case for case in wanted if isinstance(case, Case)]
    with starting(engine, tiny_models, cases, tmp_path_factory.mktemp("starts")) as found:
        yield found
