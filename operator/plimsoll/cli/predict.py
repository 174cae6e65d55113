"""``plimsoll predict``: engine starts as JSON lines in, predictions as JSON lines out, in order and constant memory."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer

from plimsoll.cli.hub import HubError, HubOption, hub_config
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.rows import BadRowError, ModelRequest, UnknownModelError, answer, bad_row
from plimsoll.facts import catalogue
from plimsoll.facts.models import ModelFacts, read_model
from plimsoll.facts.overrides import overridden

LONGEST_LINE: Final = 8 << 20
REMEMBERED_MODELS: Final = 256
_BAD_INPUT: Final = 2
_UNREACHABLE: Final = 3


def predict(
    rows: Annotated[str, typer.Argument(help="A file of JSON lines, or - for standard input.", metavar="ROWS.jsonl")],
    hub: HubOption = False,
) -> None:
    """Predict engine starts: one JSON object a line in, one prediction a line out.

    Exit code 2 when any line was bad; the others are answered all the same. 3: --hub was given and the hub could not
    be reached.
    """
    with ExitStack() as stack:
        try:
            stream = sys.stdin.buffer if rows == "-" else stack.enter_context(Path(rows).open("rb"))
        except OSError as error:
            typer.echo(f"{rows}: cannot be read: {error.strerror}", err=True)
            raise typer.Exit(_BAD_INPUT) from None
        models = Models(Path.cwd() if rows == "-" else Path(rows).parent, hub=hub)
        bad = 0
        for found in predictions(read_lines(stream), models):
            bad += found.get("reason") == "bad_row"
            _write(found)
    if bad:
        typer.echo(f"{bad} bad row{'s' if bad > 1 else ''}", err=True)
        raise typer.Exit(_BAD_INPUT)
    if models.unreachable:
        raise typer.Exit(_UNREACHABLE)


def predictions(lines: Iterable[bytes | None], models: "Models") -> Iterator[dict[str, Any]]:
    """One answer for each line; blank lines have none. None stands for a line that is too long."""
    for line in lines:
        if line is None:
            yield bad_row(None, f"a line is longer than {LONGEST_LINE >> 20} MiB")
        elif line.strip():
            yield _answer_line(line, models)


def _answer_line(line: bytes, models: "Models") -> dict[str, Any]:
    try:
        row = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return bad_row(None, f"not a JSON object in UTF-8: {str(error)[:120]}")
    return answer(row, models)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def read_lines(stream: IO[bytes]) -> Iterator[bytes | None]:
    """Lines of bounded length; what is longer is skipped to its end and given as None."""
    while line := stream.readline(LONGEST_LINE):
        if line.endswith(b"\n") or len(line) < LONGEST_LINE:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(LONGEST_LINE)
        yield None


def _write(found: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(found, allow_nan=False) + "\n")
    sys.stdout.flush()


class Models:
    """Finds models by catalogue name, path or object, and remembers the last ones.

    Paths are relative to the working directory, else to the rows' own folder.
    """

    def __init__(self, folder: Path, *, hub: bool = False) -> None:
        self._folder = folder
        self._hub = hub
        self.unreachable = False
        """Whether the hub was asked and could not be reached."""
        self._remembered = lru_cache(maxsize=REMEMBERED_MODELS)(self._find)

    def __call__(self, request: ModelRequest) -> ModelFacts:
        """Facts of the model a row asks for."""
        return self._remembered(
            request.model if request.config is None else None,
            _key(request.config),
            _key(request.quant_config),
            request.weights_bytes,
            _key(request.hf_overrides or None),
        )

    def _find(
        self,
        model: str | None,
        config: str | None,
        quant_config: str | None,
        weights: int | None,
        overrides: str | None,
    ) -> ModelFacts:
        written = self._object(config, "config")
        quant = self._object(quant_config, "quant_config")
        if written is None:
            named = self._named(model or "")
            written, quant = named.config, quant if quant is not None else named.quant_config
            weights = weights if weights is not None else named.weights_bytes
        if overrides is not None:
            written = overridden(written, json.loads(overrides))
        return read_model(written, quant, weights_bytes=weights)

    def _named(self, model: str) -> ModelConfig:
        found = bundled_config(model)
        if found is not None:
            return found
        if not self._hub:
            close = ", ".join(catalogue.nearest(model))
            hint = f" (nearest: {close})" if close else ""
            raise UnknownModelError(f"model {model!r} is not in the bundled catalogue{hint}: give config, or --hub")
        try:
            return hub_config(model)
        except HubError as error:
            self.unreachable |= error.unreachable
            raise UnknownModelError(f"model: {error}") from None

    def _object(self, key: str | None, field: str) -> Mapping[str, Any] | None:
        if key is None:
            return None
        if key.startswith("{"):  # an object's text; a path cannot be told apart only if it starts like one
            found: Mapping[str, Any] = json.loads(key)
            return found
        try:
            return _read(self._path(key), field)
        except OSError as error:
            raise BadRowError(f"{field}: {key!r} cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise BadRowError(f"{field}: {key[:60]!r} is not a path: {error}") from None

    def _path(self, written: str) -> Path:
        path = Path(written)
        return path if path.is_absolute() or path.exists() else self._folder / path


def _key(value: str | Mapping[str, Any] | None) -> str | None:
    """A path as it is, an object as its text."""
    return json.dumps(value) if isinstance(value, Mapping) else value


def _read(path: Path, field: str) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadRowError(f"{field}: {path} is not JSON: {str(error)[:120]}") from None
    if not isinstance(found, dict):
        raise BadRowError(f"{field}: {path} holds a {type(found).__name__}, not an object")
    return found
