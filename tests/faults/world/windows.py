"""Answers to what is asked of canary and control, window by window, from the scrapes that were kept."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from plimsoll.core.sampling import Answer, Series
from plimsoll.core.trial_windows import FIGURE, window_query
from tests.faults.world.engines import Engine

_PODS: Final = re.compile(r'namespace="([^"]*)",pod=~"([^"]*)"')
_WHEN: Final = re.compile(r"\[(\d+)ms\] offset (\d+)ms")


@dataclass(frozen=True)
class Seen:
    """One engine at one scrape."""

    at_seconds: float
    engine: Engine


def window_answer(query: str, history: Mapping[tuple[str, str], Sequence[Seen]], now: float) -> Answer | None:
    """The answer; None to a query that is not of a window."""
    who, when = _PODS.search(query), _WHEN.search(query)
    if who is None or when is None:
        return None
    namespace, pods = who[1], who[2].split("|")
    seconds, ago = (int(text) / 1000 for text in when.groups())
    if query != window_query(pods, namespace, seconds, ago, {}):
        return None
    found = []
    for pod in pods:
        for figure, value in _figures(history.get((namespace, pod), ()), now - ago - seconds, now - ago):
            found.append(Series({"namespace": namespace, "pod": pod, FIGURE: figure}, value))
    return Answer(tuple(found))


def _figures(seen: Sequence[Seen], start: float, end: float) -> Iterable[tuple[str, float]]:
    """Of the scrapes in the window, and the last one before it: a window as long as one scrape has no two."""
    before = [each for each in seen if each.at_seconds <= start]
    inside = [each for each in seen if start < each.at_seconds <= end]
    if not inside or not before:
        return
    first, last = before[-1].engine, inside[-1].engine
    finished = last.finished - first.finished
    wait = last.waiting / (last.pool.slots / last.pool.seconds)
    tokens = last.generation_tokens - first.generation_tokens
    yield from {"finished": finished, "failed": 0.0, "rejected": 0.0, "generated": tokens}.items()
    yield from {
        "waiting": last.waiting,
        "usage": last.usage,
        "preemptions": last.preemptions - first.preemptions,
    }.items()
    seconds = last.pool.seconds
    means = {"ttft": last.pool.first_seconds + wait, "token": 0.9 * seconds / 200, "request": seconds + wait}
    yield "token_tail", 2 * means["token"]
    for name, mean in means.items():
        yield from {f"{name}_total": mean * finished, f"{name}_count": finished}.items()
