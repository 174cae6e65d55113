"""Whether tests notice that a module was changed: tried in forks of this process, nothing is written to disk.

``in_place`` collects the tests once and gives a fork for each change the changed function's code. What has run by then
(tables, decorators, caches) is not undone by that: there ``on_import`` serves the changed module to whoever imports it.
This process must have none of the modules loaded that import the changed one.
"""

import ast
import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import math
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, Literal

import pytest
from hypothesis import Phase, settings

Fate = Literal["killed", "lives", "untold"]
"""Of a changed module; untold: only an import would tell."""

OPTIONS: Final = (
    "-x", "-q", "--tb=no", "--timeout=120", "--hypothesis-profile=mutants", "-p", "no:cacheprovider",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # the libraries are loaded already
)  # fmt: skip
USUAL_SECONDS: Final = 600
LEAST_SECONDS: Final = 5.0

# Nobody reads the example that kills a mutant: no time for a smaller one.
settings.register_profile("mutants", deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))


class TestsFailError(Exception):
    """The tests fail without any change."""


def in_place(
    tests: Sequence[Path], module: str, path: Path, trees: Sequence[ast.Module], longest_seconds: float = math.inf
) -> list[Fate]:
    """What becomes of each changed tree, when only the code of the changed function is replaced.

    Without the tests that take longer, in seconds of CPU.
    """
    trials = _Trials(module, path, trees, longest_seconds)

    def work() -> list[Fate]:
        run_pytest(tests, trials)
        return trials.fates

    fates: list[Fate] | None = forked(work)[0]
    if not fates:
        raise TestsFailError
    return fates


def on_import(tests: Sequence[Path], module: str, path: Path, trees: Sequence[ast.Module]) -> list[Fate]:
    """The same with a start of the tests for each tree: slow, and true of whatever an import does."""
    passed, usual = forked(lambda: run_pytest(tests) == 0)
    if not passed:
        raise TestsFailError

    def work(tree: ast.Module) -> bool:
        sys.meta_path.insert(0, _Finder(module, _Loader(path, tree)))
        return run_pytest(tests) == 0

    passes = (forked(partial(work, tree), allowed(usual))[0] for tree in trees)
    return ["lives" if each else "killed" for each in passes]


def run_pytest(tests: Sequence[Path], *plugins: object) -> int:
    """Its exit code; what it prints goes nowhere."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    return int(pytest.main([*OPTIONS, *map(str, tests)], plugins=list(plugins)))


def allowed(usual_seconds: float) -> int:
    """Seconds of CPU after which a change counts as an endless loop, whatever else the machine does."""
    return round(LEAST_SECONDS + 3 * usual_seconds)


def forked(work: Callable[[], Any], cpu_seconds: int = resource.RLIM_INFINITY) -> tuple[Any, float]:
    """What ``work`` returns in a fork of this process, None when it does not return; and its seconds of CPU."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, resource.RLIM_INFINITY))
            with os.fdopen(writes, "wb") as pipe:
                pipe.write(json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read()
    _, _, used = os.wait4(pid, 0)
    return json.loads(said) if said else None, used.ru_utime + used.ru_stime


class _Trials:
    """A plugin of pytest that runs the collected tests once for each change, the quick files first."""

    def __init__(self, module: str, path: Path, trees: Sequence[ast.Module], longest_seconds: float) -> None:
        self.fates: list[Fate] = []
        self._module, self._path, self._trees = module, str(path), trees
        self._longest_seconds = longest_seconds
        self._ran: set[CodeType] = set()
        self._seconds: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        sys.settrace(self._note)
        importlib.import_module(self._module)

    def _note(self, frame: FrameType, *_: object) -> None:
        if frame.f_code.co_filename == self._path:
            self._ran.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        done = yield
        self._seconds[item.nodeid] = time.process_time() - began
        return done

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)
        ours = functions_in({self._path})[self._path]
        gc.freeze()
        seconds, usual = forked(lambda: all_pass(session) and self._seconds, USUAL_SECONDS)
        if seconds:
            session.items[:] = [item for item in session.items if seconds[item.nodeid] <= self._longest_seconds]
            usual = min(usual, sum(seconds[item.nodeid] for item in session.items))
            quick_first(session.items, seconds)
            self.fates = [self._fate(session, changed_functions(ours, tree, self._path), usual) for tree in self._trees]
        return True

    def _fate(self, session: pytest.Session, changed: Sequence[tuple[FunctionType, CodeType]], usual: float) -> Fate:
        if not changed or any(function.__code__ in self._ran for function, _ in changed):
            return "untold"

        def work() -> bool:
            for function, code in changed:
                function.__code__ = code
            return all_pass(session)

        return "lives" if forked(work, allowed(usual))[0] else "killed"


def functions_in(files: Set[str]) -> dict[str, list[FunctionType]]:
    """The live functions of each file; to be asked before ``gc.freeze``, which hides them."""
    gc.collect()
    found: dict[str, list[FunctionType]] = {name: [] for name in files}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename in found:
            found[each.__code__.co_filename].append(each)
    return found


def all_pass(session: pytest.Session) -> bool:
    """Run the session's tests up to the first that fails."""
    for item, after in zip(session.items, [*session.items[1:], None], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.testsfailed:
            return False
    return not session.testsfailed


def quick_first(items: list[pytest.Item], seconds: dict[str, float]) -> None:
    """File by file, since a file's tests may share a fixture."""
    of_file = Counter[Path]()
    for item in items:
        of_file[item.path] += seconds[item.nodeid]  # type: ignore[assignment]
    items.sort(key=lambda item: (of_file[item.path], str(item.path), seconds[item.nodeid]))


def changed_functions(ours: Sequence[FunctionType], tree: ast.Module, path: str) -> list[tuple[FunctionType, CodeType]]:
    """The functions that the tree changes, with their new code; none when they cannot be told or replaced."""
    codes = list(inner_codes(compile(ast.fix_missing_locations(tree), path, "exec")))
    times = Counter(map(_place, codes))
    new = {_place(code): code for code in codes if times[_place(code)] == 1}
    pairs = [(each, new[_place(each.__code__)]) for each in ours if _place(each.__code__) in new]
    changed = [(function, code) for function, code in pairs if function.__code__ != code]
    return changed if all(each.__code__.co_freevars == code.co_freevars for each, code in changed) else []


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def inner_codes(code: CodeType) -> Iterator[CodeType]:
    """The code of functions, classes and comprehensions within."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from inner_codes(inner)


class _Loader(importlib.abc.SourceLoader):
    """Serves the changed tree in place of the module's file."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self._path, self._tree = path, tree

    def get_filename(self, fullname: str) -> str:
        del fullname
        return str(self._path)

    def get_data(self, path: str | bytes) -> bytes:
        return Path(os.fsdecode(path)).read_bytes()

    def get_code(self, fullname: str) -> Any:  # noqa: ANN401 - code
        del fullname
        return compile(ast.fix_missing_locations(self._tree), str(self._path), "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, loader: _Loader) -> None:
        self._module, self._loader = module, loader

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        return importlib.machinery.ModuleSpec(fullname, self._loader, origin=self._loader.get_filename(fullname))
