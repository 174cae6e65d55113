"""The command line: what the engine's parser refuses, what it will refuse after the next upgrade."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.audit.rule import Group, Hit, Severity, rule
from plimsoll.core.workloads.arguments import Use, read_number
from plimsoll.core.workloads.launch import is_unresolved
from plimsoll.core.workloads.server import Server
from plimsoll.facts import engine_flags, past_flags
from plimsoll.facts.engines import NEWEST

_DOCKER: Final = frozenset(
    {"shm_size", "gpus", "ipc", "runtime", "volume", "ulimit", "network", "rm", "privileged", "name", "env", "publish"}
)
_SEVERAL: Final = 3


@rule(
    "value-in-one-element",
    Group.START,
    Severity.ERROR,
    title="A flag and its value in one list element",
    why='Each element of args is one word for the engine: "--flag value" as one element is an unknown flag with a '
    "blank in its name, and the engine exits with code 2.",
    fix="Write two elements, or --flag=value.",
)
def value_in_one_element(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A blank inside a word that starts a flag."""
    if server.candidate.scope == "values":
        return  # charts join them in a shell, or do not: the values do not tell
    for index, word in enumerate(server.launch.argv or ()):
        if re.match(r"--[\w-]+[ \t]+\S", word) and "=" not in word.split()[0]:
            several = len(re.findall(r"(?:^|\s)--[\w-]+", word)) >= _SEVERAL
            what = "the whole command line in one list element" if several else "flag and value in one list element"
            shown = word if len(word) <= 60 else f"{word[:57]}…"  # noqa: PLR2004
            yield Hit(f"{what} ({shown.strip()}): argparse rejects it", server.word_field(index))


@rule(
    "unknown-flag",
    Group.START,
    Severity.ERROR,
    title="A flag that vLLM does not have",
    why='The engine exits with code 2 and "unrecognized arguments". Options of docker run (--shm-size, --gpus) '
    "belong to the pod: a memory-backed emptyDir at /dev/shm, resources.limits.",
    fix="Remove it, or use the flag that was meant.",
)
def unknown_flag(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """No recorded release knows it."""
    for use in server.arguments.uses:
        if use.known or not use.written.startswith("--") or is_unresolved(use.written):
            continue
        if use.dest in _DOCKER:
            yield Hit(
                f"{use.written} is a docker option: vLLM exits on the unknown argument", server.word_field(use.index)
            )
            continue
        close = get_close_matches(use.dest, engine_flags.spellings(), n=1, cutoff=0.8)
        meant = f"; --{close[0].replace('_', '-')} was meant?" if close else ""
        fork = server.image is None or not server.image.for_cuda
        yield Hit(
            f"{use.written}: no recorded vLLM release (0.10 to {NEWEST}) has this flag{meant}",
            server.word_field(use.index),
            Severity.WARNING if fork else None,
        )


@rule(
    "removed-flag",
    Group.UPGRADE,
    Severity.WARNING,
    title="A flag that recent vLLM has removed or renamed",
    why="A removed flag is an unknown argument: the engine exits with code 2. With a pinned older image it waits for "
    "the "
    "next upgrade; with a floating tag for the next pull.",
    fix="Remove it or write what replaced it.",
)
def removed_flag(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The newest release no longer takes it."""
    for use in server.arguments.uses:
        gone = _gone(use)
        if gone is None:
            continue
        last, successor = gone
        instead = f"; instead: {successor}" if successor else ""
        severity = _already_fatal(use, server, evidence)
        now = " and the engine here already refuses it" if severity is Severity.ERROR else ""
        yield Hit(
            f"flag removed or renamed in recent vLLM: {use.written} (last seen in {last}){now}{instead}",
            server.word_field(use.index),
            severity,
            group=Group.START if now else None,
        )


def _gone(use: Use) -> tuple[str, str | None] | None:
    """(last release with the flag, what came instead)."""
    if use.flag is None:
        successor = past_flags.find(use.dest)
        return None if successor is None else ("0.10 or before", successor)
    if not engine_flags.removed(use.flag):
        return None
    return engine_flags.last_seen(use.flag), engine_flags.successor(use.dest)


def _already_fatal(use: Use, server: Server, evidence: Evidence) -> Severity:
    if evidence.version is not None:
        known = use.flag.known_to(evidence.version) if use.flag else False
        return Severity.WARNING if known else Severity.ERROR
    floating = server.image is not None and server.image.for_cuda and server.image.moves is not None
    return Severity.ERROR if floating else Severity.WARNING


@rule(
    "flag-newer-than-engine",
    Group.START,
    Severity.ERROR,
    title="A flag that this release does not have yet",
    why='The engine exits with code 2 and "unrecognized arguments".',
    fix="Take a release that has it, or remove it.",
)
def flag_newer_than_engine(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """The pinned release is older than the flag."""
    version = evidence.version
    for use in server.arguments.uses if version else ():
        assert version is not None  # noqa: S101 # the loop asks
        if use.flag is None or use.flag.known_to(version) or engine_flags.removed(use.flag):
            continue
        first = engine_flags.releases()[use.flag.seen[0]]
        yield Hit(
            f"{use.written}: vLLM {version} does not have it yet (first seen in {first})", server.word_field(use.index)
        )


@rule(
    "abbreviated-flag",
    Group.UPGRADE,
    Severity.WARNING,
    title="An abbreviated flag",
    why="argparse takes the beginning of a name as long as only one flag starts so. The next release may have a second "
    'one, and the engine then exits with "ambiguous option".',
    fix="Write the whole name.",
)
def abbreviated_flag(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Only the beginning of a name."""
    for use in server.arguments.uses:
        if use.abbreviates and _gone(use) is None:
            yield Hit(f"abbreviated flag {use.written}: {use.abbreviates} is meant", server.word_field(use.index))


@rule(
    "mixed-spelling",
    Group.UPGRADE,
    Severity.NOTE,
    title="A flag that mixes hyphens and underscores",
    why="vLLM's parser takes both today; scripts that look for a flag by its name find only one of them.",
    fix="Write hyphens throughout.",
)
def mixed_spelling(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Hyphens and underscores in one name."""
    for use in server.arguments.uses:
        name = use.written[2:].partition(".")[0]
        if "-" in name and "_" in name:
            yield Hit(f"flag spelled {name}: hyphens and underscores mixed", server.word_field(use.index))


@rule(
    "bad-flag-value",
    Group.START,
    Severity.ERROR,
    title="A value that the engine refuses",
    why="The engine's parser exits with code 2 on a value that is none of the allowed ones, or is no number.",
    fix="Take one of the values that the release allows.",
)
def bad_flag_value(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Not among the choices of the pinned release."""
    version = evidence.version
    for use in server.arguments.uses:
        if (
            use.flag is None
            or use.flag.switch
            or is_unresolved(use.text)
            or not isinstance(use.value, str)
            or " " in use.written
        ):
            continue
        if use.flag.type == "int" and read_number(use.text) is None:
            yield Hit(f"{use.written}: {use.text!r} is not a whole number", server.word_field(use.index))
        choices = use.flag.choices_of(version) if version and use.flag.known_to(version) else ()
        if choices and use.text not in choices:
            shown = ", ".join(choices[:8])
            yield Hit(
                f"{use.written}: {use.text!r} is not one of {shown} in vLLM {version}", server.word_field(use.index)
            )


@rule(
    "switch-with-value",
    Group.UPGRADE,
    Severity.WARNING,
    title="A switch written with a value",
    why="Older releases took --switch=false; since the parser has a --no- form for it, a value after a switch is an "
    "error.",
    fix="Write --switch, or --no-switch to turn it off.",
)
def switch_with_value(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """``--enable-chunked-prefill=false``."""
    for use in server.arguments.uses:
        if use.flag is None or not use.flag.switch or not use.joined:
            continue
        off = str(use.value).lower() in {"false", "0"}
        positive = next((name for name in use.flag.names if not name.startswith("--no-")), use.flag.spelling)
        wanted = f"--no-{positive[2:]}" if off else positive
        fatal = evidence.version is not None and evidence.version.at_least(10)
        yield Hit(
            f"{use.written}={use.value} (newer vLLM wants {wanted})",
            server.word_field(use.index),
            Severity.ERROR if fatal else None,
        )


@rule(
    "stray-word",
    Group.START,
    Severity.WARNING,
    title="A word that follows no flag",
    why="The engine takes one word alone, the model, and that only with vllm serve. Any other is an unrecognized "
    "argument.",
    fix="Remove it, or write the flag it belongs to.",
)
def stray_word(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """More than the model stands alone."""
    for index, word in server.arguments.alone:
        if word.strip() and not is_unresolved(word) and server.candidate.scope == "pod":
            shown = word if len(word) <= 40 else f"{word[:37]}…"  # noqa: PLR2004
            yield Hit(f"{shown!r} follows no flag: an unrecognized argument", server.word_field(index))


@rule(
    "repeated-flag",
    Group.UPGRADE,
    Severity.NOTE,
    title="A flag that stands twice",
    why="Only the last one counts; whoever edits the first wonders why nothing changes.",
    fix="Keep one.",
)
def repeated_flag(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Given several times."""
    seen: dict[str, Use] = {}
    twice: dict[str, Use] = {}
    for use in server.arguments.uses:
        if use.dest in seen:
            twice[use.dest] = use
        seen[use.dest] = use
    if twice:
        names = ", ".join(use.written.lstrip("-") for use in twice.values())
        yield Hit(
            f"duplicate flags ({names}): the last one counts", server.word_field(next(iter(twice.values())).index)
        )
