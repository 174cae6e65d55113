"""Which release's rules a plan follows: the declared version, the image's tag, or the newest; doubts are said."""

import math
import re
from collections.abc import Iterator
from typing import Final

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.facts import engines
from plimsoll.facts.engines import EngineVersion

_IMAGE_TAG: Final = re.compile(r":v?(\d+\.\d+(?:\.\d+)?)")


def release_of(spec: VLLMServiceSpec) -> tuple[EngineVersion, str, tuple[str, ...]]:
    """The rules to use, the version as written, and what is assumed about it."""
    declared, tagged = spec.engine.version, _version_of_image(spec.engine.image)
    notes = list(_version_notes(spec, declared, tagged))
    text = declared or tagged or engines.NEWEST
    rules = rules_of(text)
    if unrecorded(text):
        taken = engines.NEWEST if rules > _newest() else rules
        known = f"{engines.OLDEST_RELEASE[0]}.{engines.OLDEST_RELEASE[1]} to {engines.NEWEST}"
        notes.append(f"engine: nothing is known about vLLM {text} (known: {known}): the rules of {taken} are taken")
    return rules, text, tuple(notes)


def rules_of(text: str) -> EngineVersion:
    """The release whose rules are used for a version as written: its own, else the nearest that is known."""
    try:
        return EngineVersion.parse(text)
    except ValueError:
        return _nearest_rules(text)


def unrecorded(text: str) -> str:
    """What is to be said of a release that nobody recorded the like of; empty for the others."""
    numbers, newest, oldest = _numbers(text), _newest(), engines.OLDEST_RELEASE
    if oldest <= numbers <= (newest.major, newest.minor):
        return ""
    planned = f"{oldest[0]}.{oldest[1]}" if numbers < oldest else engines.NEWEST
    return f"vLLM {text} is not a release we know: planned as {planned}, and corrected by what its pods say"


def _version_notes(spec: VLLMServiceSpec, declared: str | None, tagged: str | None) -> Iterator[str]:
    if declared is None and tagged is None:
        where = f"engine.image {spec.engine.image} names no version: " if spec.engine.image else ""
        yield f"engine: {where}the newest vLLM with a table, {engines.NEWEST}"
    if declared and tagged and not declared.startswith(tagged):
        yield f"engine: engine.version {declared} is taken, although the tag of engine.image says {tagged}"


def _nearest_rules(text: str) -> EngineVersion:
    return EngineVersion(*engines.OLDEST_RELEASE) if _numbers(text) < engines.OLDEST_RELEASE else _newest()


def _numbers(text: str) -> tuple[float, ...]:
    """Major and minor, to be compared; what names no two numbers is taken to be newer than all that do."""
    found = tuple(int(part) for part in re.findall(r"\d{1,9}", text)[:2])
    return found if len(found) > 1 else (math.inf,)


def _newest() -> EngineVersion:
    return EngineVersion.parse(engines.NEWEST)


def _version_of_image(image: str | None) -> str | None:
    """The engine version an image's tag names, or None."""
    found = _IMAGE_TAG.search(image or "")
    return found.group(1) if found else None
