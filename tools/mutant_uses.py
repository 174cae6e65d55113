"""Many modules' mutants at once, each tried on the tests that call the changed function, whichever those are.

    python -m tools.mutant_uses --sample 12 core/kv core/memory

The tests are collected once, and run once to see what each of them calls: quicker than ``tools.mutants`` where modules
are reached through others, and blind to tests of other folders than ``--tests``. A change of what ran while the tests
were collected counts as living unless a test notices it afterwards, and of a long table some rows are tried. Of a test
that finds an answer remembered by another one it is not seen what gave it.
"""

import argparse
import gc
import importlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence, Set
from dataclasses import replace
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Final

import pytest

from tools.mutant_trials import (
    all_pass,
    allowed,
    changed_functions,
    forked,
    functions_in,
    inner_codes,
    quick_first,
    run_pytest,
)
from tools.mutants import HEAD, ROOT, Found, Mutant, chosen, load_libraries, module_of, paths_of

WATCHED_SECONDS: Final = 1800
MOST_ROWS: Final = 40


class _Calls:
    """A plugin of pytest that notes which tests call which functions of some files, and how long each test takes."""

    def __init__(self, functions: Sequence[FunctionType]) -> None:
        self.seconds: dict[str, float] = {}
        self.callers: dict[int, set[str]] = defaultdict(set)
        outer = {id(function.__code__): function.__code__ for function in functions}
        self._outer = {id(inner): at for at, code in outer.items() for inner in (code, *inner_codes(code))}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """What a fixture calls, each test of its file may be about."""
        return (yield from self._watched(str(item.path)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        began = time.process_time()
        done = yield from self._watched(item.nodeid)
        self.seconds[item.nodeid] = time.process_time() - began
        return done

    def _watched(self, name: str) -> Generator[None, object, object]:
        seen: set[int] = set()
        sys.setprofile(lambda frame, what, _: seen.add(id(frame.f_code)) if what == "call" else None)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            for code in seen & self._outer.keys():
                self.callers[self._outer[code]].add(name)


class _Trials:
    """A plugin of pytest that tries each change on the tests that call the changed function, the quick files first."""

    def __init__(
        self, mutants: Mapping[Path, Sequence[Mutant]], longest_seconds: float, tell: Callable[[Found], None]
    ) -> None:
        self.done = False
        self._mutants, self._longest_seconds, self._tell = mutants, longest_seconds, tell
        self._files = {str(path) for path in mutants}
        self._ran: set[CodeType] = set()
        self._caches: list[_lru_cache_wrapper[object]] = []

    def pytest_sessionstart(self) -> None:
        sys.settrace(self._note)
        for path in self._mutants:
            importlib.import_module(module_of(path))

    def _note(self, frame: FrameType, *_: object) -> None:
        if frame.f_code.co_filename in self._files:
            self._ran.add(frame.f_code)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)
        functions, self._caches = functions_in(self._files), _caches({module_of(path) for path in self._mutants})
        gc.freeze()  # which hides them all
        calls = _Calls([function for each in functions.values() for function in each])

        def watch() -> tuple[dict[str, float], list[tuple[int, list[str]]]] | None:
            session.config.pluginmanager.register(calls)
            passed = all_pass(session)
            return (calls.seconds, [(code, [*names]) for code, names in calls.callers.items()]) if passed else None

        if seen := forked(watch, WATCHED_SECONDS)[0]:
            self._try_all(session, functions, seen[0], dict(seen[1]))
            self.done = True
        return True

    def _try_all(
        self,
        session: pytest.Session,
        functions: Mapping[str, Sequence[FunctionType]],
        seconds: dict[str, float],
        callers: Mapping[int, Sequence[str]],
    ) -> None:
        items = [item for item in session.items if seconds[item.nodeid] <= self._longest_seconds]
        quick_first(items, seconds)
        for path, mutants in self._mutants.items():
            alive = []
            for mutant in mutants:
                changed = changed_functions(functions[str(path)], mutant.tree, str(path))
                names = {name for function, _ in changed for name in callers.get(id(function.__code__), ())}
                session.items[:] = _some([each for each in items if each.nodeid in names or str(each.path) in names])
                if self._lives(session, changed, sum(seconds[item.nodeid] for item in session.items)):
                    told = not changed or any(function.__code__ in self._ran for function, _ in changed)
                    alive.append(replace(mutant, name=f"{mutant.name}{'  (or an import tells)' * told}"))
            self._tell(Found(module_of(path), len(mutants), tuple(alive)))

    def _lives(
        self, session: pytest.Session, changed: Sequence[tuple[FunctionType, CodeType]], usual_seconds: float
    ) -> bool:
        def work() -> bool:
            for cache in self._caches:  # filled while the tests were collected
                cache.cache_clear()
            for function, code in changed:
                function.__code__ = code
            return all_pass(session)

        return not changed or not session.items or bool(forked(work, allowed(usual_seconds))[0])


def _some(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Of a test with a long table, rows from all over it."""
    tables: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        tables[item.path, item.name.partition("[")[0]].append(item)
    return [item for rows in tables.values() for item in rows[:: -(-len(rows) // MOST_ROWS)]]


def _caches(modules: Set[str]) -> list["_lru_cache_wrapper[object]"]:
    return [each for each in gc.get_objects() if isinstance(each, _lru_cache_wrapper) and each.__module__ in modules]


def main() -> None:
    """A line for each module, and the mutants that live."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutant_uses", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--tests", nargs="+", type=Path, default=[ROOT / "tests" / "unit" / "core"])
    parser.add_argument("--sample", type=int, default=0, help="at most so many mutants a module; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--longest", type=float, default=0.5, help="seconds of CPU; tests that take longer are left out"
    )
    options = parser.parse_args()
    load_libraries()
    mutants = {path: chosen(path, options.sample, options.seed) for path in paths_of(options.modules)}
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)

    def tell(each: Found) -> None:
        print(each, file=out)

    def work() -> bool:
        trials = _Trials(mutants, options.longest, tell)
        run_pytest(options.tests, trials)
        return trials.done

    print(HEAD, flush=True)
    if not forked(work)[0]:
        raise SystemExit("the tests fail as they are")


if __name__ == "__main__":
    main()
