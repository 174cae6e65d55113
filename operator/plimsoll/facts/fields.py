"""Checked access to a configuration somebody else wrote: an answer has a type and a sane size, or names its field."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from plimsoll.facts.models import JSONObject, ModelConfigError

# No published model comes within a factor of ten of these; beyond them arithmetic means nothing.
MAX_LAYERS: Final = 4096
MAX_SIZE: Final = 1 << 24
MAX_TOKENS: Final = 1 << 40

_ABSENT: Final = object()


@cache
def _spellings() -> Mapping[str, Mapping[str, object]]:
    text = Path(__file__).with_name("spellings.json").read_text(encoding="utf-8")
    loaded: Mapping[str, Mapping[str, object]] = json.loads(text)
    return loaded


def _spelling(model_type: str, part: str) -> Mapping[str, object]:
    found = _spellings().get(model_type, {}).get(part)
    return found if isinstance(found, Mapping) else {}


def default_text_type(model_type: str) -> str | None:
    """Model type of a wrapper's text part when the part does not name its own."""
    found = _spellings().get(model_type, {}).get("text")
    return found if isinstance(found, str) else None


class Fields:
    """One object of a configuration, read by key.

    A key that is absent takes the default of its model type, as transformers would fill it in (``spellings.json``);
    ``assumed`` collects those. A key that holds null is null.
    """

    def __init__(self, values: JSONObject, path: str = "", model_type: str = "") -> None:
        self.values = values
        self.path = path
        self.model_type = model_type
        self.assumed: list[str] = []
        self._defaults = _spelling(model_type, "defaults")
        self._renamed = _spelling(model_type, "renamed")

    def name(self, key: str) -> str:
        """The key as an error message names it."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """Whether the key is written and not null."""
        return self._written(key) not in (_ABSENT, None)

    def get(self, key: str) -> object:
        """The value as written, else the default of the model type, else None."""
        found = self._written(key)
        if found is not _ABSENT:
            return found
        if key in self._defaults:
            self.assumed.append(self.name(key))
            return self._defaults[key]
        return None

    def class_default(self, *keys: str) -> int | None:
        """What the model type's class would fill in for the first of ``keys`` it has a number for."""
        return next((value for key in keys if isinstance(value := self._defaults.get(key), int)), None)

    def _written(self, key: str) -> object:
        if key in self.values:
            return self.values[key]
        other = self._renamed.get(key)
        return self.values.get(other, _ABSENT) if isinstance(other, str) else _ABSENT

    def optional_int(self, *keys: str, minimum: int = 0, maximum: int = MAX_SIZE) -> int | None:
        """The first of ``keys`` that holds a number; None when none does."""
        for key in keys:
            value = self.get(key)
            if value is not None:
                return self._checked(key, value, minimum, maximum)
        return None

    def integer(self, *keys: str, minimum: int = 1, maximum: int = MAX_SIZE) -> int:
        """The first of ``keys`` that holds a number.

        Raises:
            ModelConfigError: none does, or it is not a whole number within the limits.
        """
        found = self.optional_int(*keys, minimum=minimum, maximum=maximum)
        if found is None:
            raise ModelConfigError(self.name(keys[0]), None, f"missing; a whole number from {minimum} is needed")
        return found

    def _checked(self, key: str, value: object, minimum: int, maximum: int) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= maximum:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelConfigError(self.name(key), value, "not a whole number")
        if not minimum <= value <= maximum:
            raise ModelConfigError(self.name(key), _short(value), f"outside {minimum} to {maximum}")
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """A true or false key; null and absent give ``default``."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool | int):
            raise ModelConfigError(self.name(key), value, "neither true nor false")
        return bool(value)

    def text(self, key: str, default: str | None = None) -> str | None:
        """A string key."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ModelConfigError(self.name(key), value, "not a string")
        return value

    def number(self, key: str) -> float | None:
        """A numeric key, whole or not."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MAX_TOKENS:
            raise ModelConfigError(self.name(key), _short(value), "not a number of sane size")
        return float(value)

    def child(self, key: str, model_type: str = "") -> "Fields | None":
        """An object inside this one; None when absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ModelConfigError(self.name(key), value, "not an object")
        return Fields(value, self.name(key), model_type)

    def strings(self, key: str, *, length: int | None = None) -> tuple[str, ...] | None:
        """A list of strings, of ``length`` entries at least when given (more are ignored, as vLLM does)."""
        values = self._list(key, length)
        if values is None:
            return None
        for value in values:
            if not isinstance(value, str):
                raise ModelConfigError(self.name(key), value, "a list of strings is needed")
        return tuple(str(value) for value in values)

    def integers(
        self, key: str, *, length: int | None = None, minimum: int = 0, maximum: int = MAX_SIZE
    ) -> tuple[int, ...] | None:
        """A list of whole numbers."""
        values = self._list(key, length)
        return None if values is None else tuple(self._checked(key, value, minimum, maximum) for value in values)

    def integers_or_nulls(self, key: str, *, maximum: int = MAX_SIZE) -> tuple[int | None, ...] | None:
        """A list of whole numbers and nulls; a zero is a null."""
        values = self._list(key, None)
        if values is None:
            return None
        return tuple(None if value is None else self._checked(key, value, 0, maximum) or None for value in values)

    def _list(self, key: str, length: int | None) -> Sequence[object] | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ModelConfigError(self.name(key), value, "not a list")
        if length is not None and len(value) < length:
            raise ModelConfigError(self.name(key), f"{len(value)} entries", f"{length} layers need {length}")
        if len(value) > MAX_LAYERS:
            raise ModelConfigError(self.name(key), f"{len(value)} entries", f"more than {MAX_LAYERS}")
        return value if length is None else value[:length]


def _short(value: object) -> object:
    """A value that is safe to print: Python refuses to print integers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 200:  # noqa: PLR2004
        return f"a number of {value.bit_length()} bits"
    return value
