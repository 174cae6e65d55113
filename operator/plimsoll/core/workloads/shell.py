"""Words of a shell script, as far as a reader can know them: quotes, continuations, variables, lists of commands.

Not a shell: nothing runs. A variable nobody set here, and what a command would print, stay in the text as they are
written, so that the words say what is not known.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

LONGEST: Final = 1 << 18
_OPERATORS: Final = ("&&", "||", ";;", "|&", "|", ";", "&", "(", ")", "\n")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<all>\[[@*]\])?(?P<rest>(:?[-=?+]).*)?", re.DOTALL)
_ASSIGNED: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<more>\+?)=(?P<value>.*)", re.DOTALL)
_RESERVED: Final = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "do", "done", "while", "until", "{", "}", "!", "time", "case", "esac"}
)


@dataclass(frozen=True)
class Command:
    """One simple command: its words, and how the shell runs it."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    """What was exported or put before the command."""
    replaces_shell: bool = False
    """Run with ``exec``: it gets the signals that the container gets."""
    piped: bool = False
    """Its output goes into another command, whose end and exit code then count."""
    background: bool = False


@dataclass
class _Word:
    parts: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    started: bool = False

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.started = True

    def split(self, text: str) -> None:
        """An expansion outside quotes: its blanks part words."""
        pieces = text.split()
        if text[:1].isspace():
            self.cut()
        for at, piece in enumerate(pieces):
            if at:
                self.cut()
            self.add(piece)
        if text and text[-1].isspace():
            self.cut()

    def cut(self) -> None:
        if self.started:
            self.fields.append("".join(self.parts))
        self.parts, self.started = [], False

    def take(self) -> list[str]:
        self.cut()
        taken, self.fields = self.fields, []
        return taken


class _Reader:
    """Splits a script into words and operators; assignments made on the way are known to what follows."""

    def __init__(self, script: str, variables: Mapping[str, str]) -> None:
        self.text = script[:LONGEST].replace("\r\n", "\n")
        self.at = 0
        self.variables = dict(variables)
        self.arrays: dict[str, list[str]] = {}
        self.word = _Word()
        self.heredocs: list[str] = []

    def tokens(self) -> Iterator[tuple[str, bool]]:
        """(text, whether it is an operator)."""
        while self.at < len(self.text):
            if operator := self._operator():
                yield from ((word, False) for word in self.word.take())
                yield operator, True
                continue
            if not self._step():
                yield from ((word, False) for word in self.word.take())
        yield from ((word, False) for word in self.word.take())

    def _operator(self) -> str | None:
        found = next((each for each in _OPERATORS if self.text.startswith(each, self.at)), None)
        if found is None or (found == "(" and self.word.started):
            return None
        self.at += len(found)
        if found == "\n":
            self._skip_heredocs()
        return found

    def _step(self) -> bool:
        """Read one thing; False where a word ends."""
        char = self.text[self.at]
        if char in " \t":
            self.at += 1
            return False
        if char == "#" and not self.word.started:
            self.at = _or_end(self.text, self.text.find("\n", self.at))
        elif char in "<>":
            self._redirection()
        elif char == "\\":
            self._escape()
        elif char == "'":
            end = _or_end(self.text, self.text.find("'", self.at + 1))
            self.word.add(self.text[self.at + 1 : end])
            self.at = end + 1
        elif char == '"':
            self._double_quoted()
        elif char in "$`":
            self._expansion(quoted=False)
        elif char == "(":
            self._array()
        else:
            self.word.add(char)
            self.at += 1
        return True

    def _escape(self) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if following != "\n":
            self.word.add(following)

    def _double_quoted(self) -> None:
        self.at += 1
        self.word.add("")
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in {'"', "\\", "$", "`", "\n"}:
                self._escape()
            elif char in "$`":
                self._expansion(quoted=True)
            else:
                self.word.add(char)
                self.at += 1
        self.at += 1

    def _expansion(self, *, quoted: bool) -> None:
        start = self.at
        end, value = self._value(start)
        self.at = end
        if isinstance(value, list):
            for index, each in enumerate(value):
                if index:
                    self.word.cut()
                self.word.add(each)
        elif value is None or quoted:
            self.word.add(self.text[start:end] if value is None else value)
        else:
            self.word.split(value)

    def _value(self, start: int) -> tuple[int, str | list[str] | None]:
        """(end, value) of what stands at a dollar or a backquote; None where it cannot be known."""
        text = self.text
        if text[start] == "`":
            return _or_end(text, text.find("`", start + 1)) + 1, None
        if text.startswith("$(", start):
            return _closing(text, start + 1, "()"), None
        if text.startswith("${", start):
            end = _closing(text, start + 1, "{}")
            return end, self._braced(text[start + 2 : end - 1])
        name = _NAME.match(text, start + 1)
        if name is None:
            # A lone dollar is itself; $1, $@, $? are the caller's.
            return start + (2 if text[start + 1 : start + 2] in set("0123456789@*#?$!-") else 1), None
        if name[0] in self.arrays:
            return name.end(), " ".join(self.arrays[name[0]][:1])
        return name.end(), self.variables.get(name[0])

    def _braced(self, inner: str) -> str | list[str] | None:
        match = _BRACED.fullmatch(inner)
        if match is None:
            return None
        if match["all"]:
            return self.arrays.get(match["name"])
        value = self.variables.get(match["name"])
        if match["rest"] is None:
            return value
        operator = match["rest"][: 2 if match["rest"][0] == ":" else 1]
        other = match["rest"][len(operator) :].strip("\"'")
        if operator.endswith("+"):
            return other if value else ""
        kept = value if value or (value == "" and operator[0] != ":") else None
        # What somebody else may have set (a Secret, the image) beats a default that stands here.
        return kept if kept is not None or not operator.endswith(("-", "=")) else other

    def _array(self) -> None:
        """``NAME=( … )``: words up to the bracket."""
        end = _closing(self.text, self.at, "()")
        inner = _Reader(self.text[self.at + 1 : end - 1], self.variables)
        inner.arrays = self.arrays
        words = [word for word, operator in inner.tokens() if not operator]
        target = "".join(self.word.parts)
        self.word.parts, self.word.started = [], False
        match = _ASSIGNED.fullmatch(target)
        if match:
            self.arrays[match["name"]] = [*(self.arrays.get(match["name"], []) if match["more"] else ()), *words]
        self.at = end

    def _redirection(self) -> None:
        if self.word.parts and "".join(self.word.parts).isdecimal():
            self.word.parts, self.word.started = [], False
        match = re.compile(r"(<<<|<<-?|<&|<|>>|>&|>\|?)[ \t]*").match(self.text, self.at)
        assert match is not None  # noqa: S101 # it starts with < or >
        self.at = match.end()
        target = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s;&|()<>]*").match(self.text, self.at)
        if target:
            self.at = target.end()
            if match[1].startswith("<<") and match[1] != "<<<":
                self.heredocs.append(target[0].strip("\"'"))
        if self.word.started and "".join(self.word.parts) == "&":
            self.word.parts, self.word.started = [], False

    def _skip_heredocs(self) -> None:
        for end in self.heredocs:
            while self.at < len(self.text):
                line, _, _ = self.text[self.at :].partition("\n")
                self.at += len(line) + 1
                if line.strip() == end:
                    break
        self.heredocs = []


def commands(script: str, variables: Mapping[str, str]) -> Iterator[Command]:
    """The simple commands of a script in order; ``variables`` are those of the container."""
    reader = _Reader(script, variables)
    exported: dict[str, str] = {}
    words: list[str] = []
    for text, operator in reader.tokens():
        if not operator:
            words.append(text)
            _assign(reader, exported, words)
            continue
        if words and (command := _command(words, exported, text)).words:
            yield command
        words = []
    if words and (command := _command(words, exported, "")).words:
        yield command


def words_of(value: object) -> list[str]:
    """Arguments as a list, or as one text that a shell would take apart."""
    if isinstance(value, str):
        return [word for command in commands(value, {}) for word in command.words]
    return [str(each) for each in value if isinstance(each, str | int | float)] if isinstance(value, list) else []


def _assign(reader: _Reader, exported: dict[str, str], words: list[str]) -> None:
    """Remember ``NAME=value`` and ``export NAME=value`` at once: what follows may use it."""
    alone = all(_ASSIGNED.fullmatch(word) for word in words)
    declares = words[0] in {"export", "declare", "local", "readonly"}
    match = _ASSIGNED.fullmatch(words[-1])
    if match and (alone or declares):
        before = reader.variables.get(match["name"], "") if match["more"] else ""
        reader.variables[match["name"]] = before + match["value"]
        if declares:
            exported[match["name"]] = before + match["value"]


def _command(words: list[str], exported: Mapping[str, str], operator: str) -> Command:
    rest, own = list(words), dict(exported)
    replaces = False
    while rest:
        match = _ASSIGNED.fullmatch(rest[0])
        if match:
            own[match["name"]] = match["value"]
        elif rest[0] == "exec":
            replaces = True
        elif rest[0] not in _RESERVED:
            break
        rest.pop(0)
    return Command(tuple(rest), own, replaces, operator in {"|", "|&"}, operator == "&")


def _closing(text: str, start: int, pair: str) -> int:
    """The place after the bracket that closes the one at ``start``."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == pair[0]) - (text[at] == pair[1])
        if depth == 0:
            return at + 1
    return len(text)


def _or_end(text: str, at: int) -> int:
    return len(text) if at < 0 else at
