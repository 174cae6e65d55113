"""How a container starts vLLM, and the argv that the engine gets: exec form, shell strings, modules, entrypoints."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from plimsoll.core.workloads.arguments import looks_like_vllm
from plimsoll.core.workloads.images import Image, image_of
from plimsoll.core.workloads.shell import commands

_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash", "zsh"})
_WRAPPERS: Final = frozenset(
    {"tini", "dumb-init", "nohup", "numactl", "taskset", "sudo", "stdbuf", "time", "timeout", "catatonit", "uv", "uvx",
     "run", "nice", "chrt", "with-contenv", "opentelemetry-instrument"}
)  # fmt: skip
_MODULES: Final = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_CLI_MODULES: Final = ("vllm.entrypoints.cli.main", "vllm", "vllm.entrypoints.cli.serve")
_VARIABLE: Final = re.compile(r"\$\((?P<name>[A-Za-z_][-A-Za-z0-9_.]*)\)|\$\$")
_UNRESOLVED: Final = re.compile(
    r"\$\([A-Za-z_][^)]*\)|\$\{[^}]+\}|(?<![\\$])\$[A-Za-z_][A-Za-z0-9_]*|\{\{.*?\}\}|^<[A-Z][^>]*>$|`[^`]+`"
)

_DEEPEST_SCRIPT: Final = 3
SHELL: Final = "shell -c"
SERVE: Final = "vllm serve"
MODULE: Final = "python -m"
ENTRYPOINT: Final = "args only (image entrypoint)"
OTHER: Final = "other command"
DEFAULT: Final = "image default"


@dataclass(frozen=True)
class Launch:
    """One start of vLLM. ``argv`` are the words after ``vllm serve`` or the module; None where they are not known.

    ``places``: for each word the field of the container that holds it.
    """

    form: str
    argv: tuple[str, ...] | None
    places: tuple[str, ...] = ()
    variables: Mapping[str, str] | None = None
    in_shell: bool = False
    replaces_shell: bool = True
    piped: bool = False
    why_unknown: str = ""
    positional_model: bool = True
    """Whether a word that stands alone at the start is the model: ``vllm serve MODEL``."""

    @property
    def unresolved(self) -> tuple[str, ...]:
        """What the words leave open: variables and templates that nothing here fills in."""
        found = (match[0] for word in self.argv or () for match in _UNRESOLVED.finditer(word))
        return tuple(dict.fromkeys(found))


def is_unresolved(word: str) -> bool:
    """Whether something that is not known here stands in a word."""
    return _UNRESOLVED.search(word) is not None


def expand(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` as Kubernetes replaces it in command and args; what it does not know stays as it is."""

    def value(match: re.Match[str]) -> str:
        return "$" if match["name"] is None else variables.get(match["name"], match[0])

    return _VARIABLE.sub(value, text) if "$" in text else text


@dataclass(frozen=True)
class Container:
    """What decides about a container's process: words with their places, image, variables, scripts it mounts."""

    command: tuple[tuple[str, str], ...]
    args: tuple[tuple[str, str], ...]
    image: Image | None
    variables: Mapping[str, str]
    scripts: Mapping[str, str]
    """Mounted text files by their path in the container."""


def container_of(raw: Mapping[str, Any], variables: Mapping[str, str], scripts: Mapping[str, str]) -> Container:
    """The container of a pod, its words expanded as Kubernetes does."""
    return Container(
        command=tuple(_words(raw.get("command"), "command", variables)),
        args=tuple(_words(raw.get("args"), "args", variables)),
        image=image_of(raw),
        variables=variables,
        scripts=scripts,
    )


def _words(value: object, field: str, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        value = [value]
    for at, word in enumerate(value if isinstance(value, Sequence) else ()):
        if isinstance(word, str | int | float) and not isinstance(word, bool):
            yield expand(str(word), variables), f"{field}[{at}]"


def launches(container: Container) -> list[Launch]:
    """Every start of vLLM in the container; empty when it runs something else."""
    found = list(_launches(container))
    return found or list(_unknown(container))


def _launches(container: Container) -> Iterator[Launch]:
    both = (*container.command, *container.args)
    words = _unwrapped([word for word, _ in both])
    places = [place for _, place in both][len(both) - len(words) :]
    script = _script(words, container)
    if script is not None:
        yield from _in_shell(script, container, places)
        return
    direct = engine_words(words)
    if direct is None and not container.command:
        direct = _by_entrypoint(words, container)
    if direct is not None:
        form, argv = direct
        positional = form != MODULE and (form != ENTRYPOINT or _serves(container, argv))
        yield Launch(form, argv, tuple(places[len(places) - len(argv) :]), positional_model=positional)


def engine_words(words: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """(form, argv) of words that start vLLM by themselves."""
    words = _unwrapped(words)
    if len(words) >= 2 and _base(words[0]) == "vllm" and words[1] == "serve":  # noqa: PLR2004
        return SERVE, tuple(words[2:])
    if not words or not re.fullmatch(r"python[\d.]*|pypy\d*", _base(words[0])):
        return None
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest = rest[2:] if rest[0] in {"-W", "-X"} else rest[1:]
    if len(rest) >= 2 and rest[0] == "-m":  # noqa: PLR2004
        return _by_module(rest[1], rest[2:])
    if rest and rest[0].endswith("vllm/entrypoints/openai/api_server.py"):
        return MODULE, tuple(rest[1:])
    return None


def _by_module(module: str, rest: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    if module in _MODULES or module.endswith(".openai.api_server"):
        return MODULE, tuple(rest)
    if module in _CLI_MODULES and rest and rest[0] == "serve":
        return SERVE, tuple(rest[1:])
    return None


def _by_entrypoint(words: Sequence[str], container: Container) -> tuple[str, tuple[str, ...]] | None:
    """Arguments alone go to the image's entrypoint; a ``serve`` before them to an image that starts ``vllm``."""
    image = container.image
    if not words or (image is not None and image.is_not_a_server):
        return None
    argv = tuple(words[1:] if words[0] == "serve" else words)
    if (image is not None and image.is_vllm) or looks_like_vllm(argv):
        return ENTRYPOINT, argv
    return None


def _serves(container: Container, argv: Sequence[str]) -> bool:
    """Whether the entrypoint is ``vllm serve``: from 0.11 on vLLM's own image's; the module takes no model alone."""
    release = container.image.release if container.image else None
    return release is None or release >= (0, 11, 0) or bool(argv and not argv[0].startswith("-"))


def _script(words: Sequence[str], container: Container) -> str | None:
    """The text that a shell would run: after ``-c``, or of a mounted file."""
    if not words:
        return None
    if _base(words[0]) in _SHELLS:
        for at, word in enumerate(words[1:], 1):
            if re.fullmatch(r"-[a-z]*c[a-z]*", word):
                after = [each for each in words[at + 1 :] if each != "--" and not re.fullmatch(r"-[a-z]+", each)]
                return after[0] if after else None
            if not word.startswith(("-", "+")):
                return container.scripts.get(word)
        return None
    if words[0] in container.scripts:
        return container.scripts[words[0]]
    # One element that holds a whole command line works only where a shell takes it apart.
    return None


def _in_shell(script: str, container: Container, places: Sequence[str], depth: int = 0) -> Iterator[Launch]:
    """Starts of vLLM in a script, and in the scripts that it calls."""
    where = places[-1] if places else ""
    found = list(commands(script, container.variables))
    last = len(found) - 1
    for at, command in enumerate(found):
        direct = engine_words(command.words)
        nested = _script(list(_unwrapped(command.words)), container) if direct is None and command.words else None
        if nested is not None and depth < _DEEPEST_SCRIPT:
            yield from (replace(each, form=SHELL) for each in _in_shell(nested, container, places, depth + 1))
        if direct is None:
            continue
        yield Launch(
            SHELL,
            direct[1],
            tuple(where for _ in direct[1]),
            variables=command.variables,
            in_shell=True,
            # A shell that has nothing to do afterwards may hand over by itself; bash does so, dash does not.
            replaces_shell=command.replaces_shell or (last == 0 and not command.piped and not command.background),
            piped=command.piped or (at > 0 and found[at - 1].piped),
            positional_model=direct[0] != MODULE,
        )


def _unknown(container: Container) -> Iterator[Launch]:
    """A vLLM image whose start is not in the manifest: said, not guessed."""
    image = container.image
    if image is None or not image.is_vllm:
        return
    words = [word for word, _ in (*container.command, *container.args)]
    if not words:
        yield Launch(DEFAULT, None, why_unknown="neither command nor args: what the image's own entrypoint does")
    elif _keeps_idle(words):
        return
    elif not container.command:
        yield Launch(ENTRYPOINT, tuple(words), tuple(place for _, place in container.args))
    else:
        first = next((word for word in words if word.startswith("/") or word.endswith((".sh", ".py"))), words[0])
        yield Launch(OTHER, None, why_unknown=f"{first} is a script of the image")


def _keeps_idle(words: Sequence[str]) -> bool:
    text = " ".join(words)
    return (
        re.search(r"\bsleep\b|tail -f|curl |pip install|huggingface-cli|hf download|git clone|benchmark", text)
        is not None
    )


def _unwrapped(words: Sequence[str]) -> list[str]:
    """Words without programs that only start another one: ``tini --``, ``env A=b``, ``numactl -N 0``."""
    rest = list(words)
    while rest:
        name = _base(rest[0])
        if name == "env" or name in _WRAPPERS:
            rest.pop(0)
            while rest and (rest[0].startswith("-") or re.fullmatch(r"[A-Za-z_]\w*=.*", rest[0], re.DOTALL)):
                option = rest.pop(0)
                if option in {"-N", "-m", "-C", "-u", "--extra", "--with", "-n", "-k", "-s", "-c"} and rest:
                    rest.pop(0)
            if name in {"timeout", "taskset"} and rest:
                rest.pop(0)
            continue
        break
    return rest


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]
