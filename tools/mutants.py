"""Does the suite bite? Change one operator at a time, and see whether a test fails (docs/adr/0038).

    python -m tools.mutants core/demand core/sizing      whole modules
    python -m tools.mutants --goal 100 deciders          the list below
    python -m tools.mutants --sample 40 core             at most 40 mutants of each module of the folder

A module's tests are those of its name, those that import it, then, level by level, those that import what imports it.
"""

import argparse
import ast
import copy
import importlib
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any, Final

from tools.mutant_trials import TestsFailError, in_place, on_import

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "operator" / "plimsoll"
TESTS: Final = sorted(
    path for room in ("unit", "property", "faults") for path in (ROOT / "tests" / room).rglob("test_*.py")
)
# What they answer is done: replicas, templates, flags, who leads, and whether any of that may be now.
DECIDERS: Final = (
    "demand", "sizing", "replica", "limits", "budget", "activation", "diagnose", "outlook", "conditions", "rollout",
    "steps", "surge", "signals", "scale", "handover", "election", "experiment", "judge", "retune", "freeze", "gate",
)  # fmt: skip
EQUIVALENT: Final = ROOT / "tools" / "equivalent_mutants.txt"
LIBRARIES: Final = ("pytest", "hypothesis", "pydantic", "yaml", "plimsoll.api.status", "plimsoll.api.v1alpha1")

_SWAPPED: Final[dict[type[ast.AST], type[Any]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip
_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}
HEAD: Final = f"{'module':44}{'mutants':>9}{'killed':>9}{'share':>9}"
_UNTOUCHED: Final = (ast.Assert, ast.Raise, ast.JoinedStr, ast.arguments, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutant:
    """One change. ``name`` says where and what, as ``equivalent_mutants.txt`` lists those that change nothing."""

    name: str
    line: int
    tree: ast.Module


def mutants(source: str) -> Iterator[Mutant]:
    """Every change of one operator, number, condition or aggregate within a function."""
    yield from (Mutant(name, line, copy.deepcopy(tree)) for name, line, tree in _each(source))


def chosen(path: Path, sample: int, seed: int) -> list[Mutant]:
    """The mutants of a module to be tried, at most ``sample`` (0: all); the same ones for the same seed."""
    source, known = path.read_text(encoding="utf-8"), _equivalent(path)
    told = [at for at, (name, _, _) in enumerate(_each(source)) if name not in known]
    tried = set(Random(seed).sample(told, sample) if sample and len(told) > sample else told)  # noqa: S311
    return [
        Mutant(name, line, copy.deepcopy(tree)) for at, (name, line, tree) in enumerate(_each(source)) if at in tried
    ]


def names(source: str) -> set[str]:
    """Of all of them."""
    return {name for name, _, _ in _each(source)}


def _each(source: str) -> Iterator[tuple[str, int, ast.Module]]:
    """One tree, which is another one after the next is asked for."""
    tree = ast.parse(source)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        for node in list(_touched(function.body)):
            for what, change in _changes(node):
                before = ast.unparse(node)
                keep = copy.copy(node.__dict__)
                change()
                name = f"{function.name}: {before} -> {ast.unparse(node)}{what}"
                yield " ".join(name.split()), getattr(node, "lineno", 0), tree
                node.__dict__.clear()
                node.__dict__.update(keep)


def _touched(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes below, without those whose change nobody should have to notice: texts, defaults, ``zip``'s guard."""
    for node in nodes:
        if isinstance(node, _UNTOUCHED) or (isinstance(node, ast.keyword) and node.arg == "strict"):
            continue
        yield node
        left_out = {"annotation", "returns", "decorator_list"}
        children = [child for name, child in ast.iter_fields(node) if name not in left_out]
        flat = [each for child in children for each in (child if isinstance(child, list) else [child])]
        inner = [each for each in flat if isinstance(each, ast.AST)]
        yield from _touched(inner)


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[], None]]]:
    """What may be changed about one node, and how: by ``setattr``, so that it can be taken back."""
    for what, field, value in (*_operators(node), *_values(node), *_conditions(node)):
        yield what, lambda field=field, value=value: setattr(node, field, value)  # type: ignore[misc]


def _operators(node: ast.AST) -> Iterator[tuple[str, str, object]]:
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                yield "", "ops", [*ops[:at], _SWAPPED[type(op)](), *ops[at + 1 :]]
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _SWAPPED:
            yield "", "op", _SWAPPED[type(op)]()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "", "operand", ast.UnaryOp(ast.Not(), operand)


def _values(node: ast.AST) -> Iterator[tuple[str, str, object]]:
    match node:
        case ast.Constant(value=bool() as value):
            yield "", "value", not value
        case ast.Constant(value=int() | float() as value):
            yield "", "value", value + 1
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield "", "func", ast.Name(_CALLS[name], ast.Load())
        case ast.Call(func=ast.Attribute(attr=name) as func) if name in _CALLS:
            yield "", "func", ast.Attribute(func.value, _CALLS[name], ast.Load())


def _conditions(node: ast.AST) -> Iterator[tuple[str, str, object]]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare):
            yield " (condition)", "test", ast.UnaryOp(ast.Not(), test)
        case ast.comprehension(ifs=[_, *rest]):
            yield " (filter)", "ifs", rest


def importers(module: str, paths: Sequence[Path]) -> list[Path]:
    """The files that import a module by its name."""
    package, _, name = module.rpartition(".")
    itself = rf"(?:from|import) {re.escape(module)}(?![\w.])"
    by_name = rf"from {re.escape(package)} import (?:\([^)]*|[^\n(]*)\b{name}\b"
    said = re.compile(rf"^\s*(?:{itself}|{by_name})", re.MULTILINE)
    return [path for path in paths if said.search(path.read_text(encoding="utf-8"))]


def module_of(path: Path) -> str:
    """Its dotted name."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def _further(module: str) -> Iterator[list[Path]]:
    """Tests of what imports the module, of what imports that, and so on."""
    sources = sorted(PACKAGE.rglob("*.py"))
    known, level = {module}, [module]
    while level:
        level = sorted({module_of(path) for each in level for path in importers(each, sources)} - known)
        known |= set(level)
        yield sorted({test for each in level for test in importers(each, TESTS)})


@dataclass(frozen=True)
class Found:
    """What became of a module's mutants."""

    module: str
    tried: int
    survivors: tuple[Mutant, ...]

    @property
    def share(self) -> float:
        """Of the mutants that were killed."""
        return 1 - len(self.survivors) / self.tried if self.tried else 1.0

    def __str__(self) -> str:
        lives = "".join(f"\n    lives: line {mutant.line}: {mutant.name}" for mutant in self.survivors)
        return f"{self.module:44}{self.tried:>9}{self.tried - len(self.survivors):>9}{self.share:>9.0%}{lives}"


def examine(path: Path, sample: int, seed: int, stages: int, longest_seconds: float) -> Found:
    """Try the module's mutants, at most ``sample`` of them (0: all), on the tests of so many stages."""
    module, found = module_of(path), chosen(path, sample, seed)
    alive = found
    for tests in islice(_stages(module), stages):
        alive = _survivors(tests, module, path, alive, longest_seconds) if alive else alive
    return Found(module, len(found), tuple(alive))


def _stages(module: str) -> Iterator[list[Path]]:
    """Tests from the nearest to the farthest, each once: most mutants end at the first."""
    direct, own = importers(module, TESTS), f"test_{module.rpartition('.')[2]}"
    nearest = [test for test in direct if test.stem == own or test.stem.startswith(f"{own}_")]
    had: set[Path] = set()
    for tests in chain([nearest, direct], _further(module)):
        if fresh := [test for test in tests if test not in had]:
            had |= set(fresh)
            yield fresh


def _survivors(
    tests: Sequence[Path], module: str, path: Path, found: Sequence[Mutant], longest_seconds: float
) -> list[Mutant]:
    try:
        fates = in_place(tests, module, path, [mutant.tree for mutant in found], longest_seconds)
        untold = [mutant for mutant, fate in zip(found, fates, strict=True) if fate == "untold"]
        told = iter(on_import(tests, module, path, [mutant.tree for mutant in untold]) if untold else ())
    except TestsFailError:
        where = " ".join(str(test.relative_to(ROOT)) for test in tests)
        raise SystemExit(f"{module}: its tests fail as it is: {where}") from None
    fates = [next(told) if fate == "untold" else fate for fate in fates]
    return [mutant for mutant, fate in zip(found, fates, strict=True) if fate == "lives"]


def _equivalent(path: Path) -> set[str]:
    """Names of the module's mutants that change nothing anybody could see, with the reason beside each."""
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.exists() else []
    here = f"{path.relative_to(PACKAGE).with_suffix('')}: "
    return {line.removeprefix(here).partition("  # ")[0] for line in lines if line.startswith(here)}


def paths_of(wanted: Sequence[str]) -> list[Path]:
    """The files of modules, folders or ``deciders``."""
    names = [name for each in wanted for name in ([f"core/{d}" for d in DECIDERS] if each == "deciders" else [each])]
    found = []
    for name in names:
        path = PACKAGE / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return [path for path in found if path.name != "__init__.py"]


def load_libraries() -> None:
    """What every collection of tests needs, once."""
    for name in LIBRARIES:
        importlib.import_module(name)


def main() -> int:
    """Exit code 1 when a module's share is below the goal."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", default=["deciders"])
    parser.add_argument("--sample", type=int, default=0, help="at most so many mutants a module; 0: all")
    parser.add_argument(
        "--stages", type=int, default=3, help="groups of tests, from the nearest: of its name, that import it, ..."
    )
    parser.add_argument(
        "--longest", type=float, default=math.inf, help="seconds of CPU; tests that take longer are left out"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--goal", type=float, default=85.0, help="percent killed of each module")
    options = parser.parse_args()
    load_libraries()
    results = []
    print(HEAD, flush=True)
    for path in paths_of(options.modules):
        found = examine(path, options.sample, options.seed, options.stages, options.longest)
        results.append(found)
        print(found, flush=True)
    tried, alive = sum(f.tried for f in results), sum(len(f.survivors) for f in results)
    print(f"{'all':44}{tried:>9}{tried - alive:>9}{1 - alive / max(1, tried):>9.0%}")
    return 1 if any(100 * found.share < options.goal for found in results) else 0


if __name__ == "__main__":
    sys.exit(main())
