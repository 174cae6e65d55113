"""Was the canary better than its control? Paired windows in, one verdict out. Pure; the same figures, the same verdict.

Two pods of the same age serve the same traffic at the same time; only one flag differs. Their figures are paired window
by window, so what the traffic did to both cancels out. Neighbouring windows resemble each other (a queue lasts), so
they are not independent: the error of the mean is that of a block bootstrap, whose resamples are drawn in whole blocks.
Of a mean that error has a closed form, which is what infinitely many resamples give: no seed, no luck. Few blocks are
few observations, hence Student's t. Near saturation a queue outlasts any block that fits: there the error is that of a
series in which each window keeps a part of the one before, as large a part as is seen.

It is asked once, when all windows are there: whoever looks every minute and stops at the first success finds one in
a third to a half of all experiments that change nothing. ``alarm`` is asked at every window and only ever ends one
early, for harm that nobody needs statistics to see. Measured: ``docs/tuning.md``.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

WINDOWS: Final = 25
"""Windows of an experiment, fixed beforehand."""
BLOCK: Final = 5
"""Windows that are resampled together: as long as a queue usually lasts."""
MOST_KEPT: Final = 0.95
"""Of a window's noise, what the next may be taken to keep."""
LEAST_SHARE: Final = 0.7
"""Of the windows, those that both pods must have told something of."""
LEAST_REQUESTS: Final = 5.0
"""Finished requests of a window, from which its means say something."""
PRESSED_SHARE: Final = 0.3
"""Of the windows, those in which the control must have been short of what the change gives."""
FULL: Final = 0.9
QUEUE: Final = 1.0
SIMILAR_TRAFFIC: Final = math.log(0.85)
"""A canary that got less of the traffic than so much of its control's proves nothing by being quick."""
LESS_TO_DO: Final = 0.01
EASIER: Final = 2
"""Near saturation a few requests fewer make a queue much shorter: a canary with less to do must gain twice as much."""
ROOM: Final = 0.7
"""A mean within so much of the target leaves the slow requests room."""
ALARM_WINDOWS: Final = 3
ALARM_TIMES: Final = 3.0
ALARM_LESS: Final = 0.8
"""A pod with a queue is as busy as it can be; one that makes fewer tokens than its control beside it is a slow one."""
ALARM_FAILED: Final = 0.2
_T99: Final = (31.8, 6.96, 4.54, 3.75, 3.36, 3.14, 3.0, 2.9, 2.82, 2.76)
"""Student's t, 99 % one-sided, by degrees of freedom from 1; more are taken as the last."""

Aim = Literal["ttft", "token"]
"""What is to fall: the time to first token, or the time that slow tokens take."""


@dataclass(frozen=True, slots=True)
class Window:
    """One pod over one window: means over its requests, rates a second. None: not known, which is never 0."""

    ttft_seconds: float | None = None
    token_seconds: float | None = None
    token_tail_seconds: float | None = None
    """Nineteen of twenty tokens come sooner: what a step with a long prompt does shows here, never in the mean."""
    request_seconds: float | None = None
    """From arrival to the last token."""
    tokens: float | None = None
    """Generated a second."""
    finished: float | None = None
    """Requests in the whole window."""
    waiting: float | None = None
    usage: float | None = None
    """Of the KV cache, at its highest."""
    preemptions: float | None = None
    failed: float | None = None
    """Requests that ended in an error or were turned away, in the whole window; the other two likewise."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Both pods over the same window; None: nothing at all was heard of one."""

    control: Window | None
    canary: Window | None


@dataclass(frozen=True)
class Question:
    """What was asked before the first window was seen."""

    aim: Aim
    windows: int = WINDOWS
    ttft_target_seconds: float | None = None
    token_target_seconds: float | None = None


Outcome = Literal["keep", "rollback", "inconclusive"]


@dataclass(frozen=True)
class Verdict:
    """The outcome, and why in a sentence with figures. Only ``keep`` changes anything for good."""

    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Effect:
    """A mean difference, and how far it may be off either way with 99 % each."""

    mean: float
    error: float

    @property
    def low(self) -> float:
        """Hardly less."""
        return self.mean - self.error

    @property
    def high(self) -> float:
        """Hardly more."""
        return self.mean + self.error


@dataclass(frozen=True)
class _Figure:
    """A figure of both pods. ``ratio``: compared as one (in logarithms), else as a difference. ``sign``: +1, less is
    better. Worse by more than ``allowed`` with certainty is harm; to be kept it must be certain not to be worse by more
    than ``unclear``. ``worth``: what must be gained of it to be worth a restart of the fleet.
    """

    name: str
    value: Callable[[Window], float | None]
    allowed: float
    unclear: float
    ratio: bool = True
    sign: int = 1
    worth: float = 0.0


def _per_request(events: float | None, window: Window) -> float | None:
    return events / window.finished if events is not None and window.finished else None


_TTFT: Final = _Figure("time to first token", lambda w: w.ttft_seconds, math.log(1.4), math.log(2), worth=math.log(0.7))
_TOKEN: Final = _Figure(
    "time per output token", lambda w: w.token_seconds, math.log(1.05), math.log(1.15), worth=math.log(0.95)
)
_TAIL: Final = _Figure(
    "95th percentile of the time between tokens", lambda w: w.token_tail_seconds, 0, 0, worth=math.log(0.9)
)
_REQUEST: Final = _Figure("time of a request", lambda w: w.request_seconds, math.log(1.1), math.log(1.25))
_TOKENS: Final = _Figure("generated tokens", lambda w: w.tokens, math.log(1.25), math.log(2.0), sign=-1)
_PREEMPTIONS: Final = _Figure("preemptions a request", lambda w: _per_request(w.preemptions, w), 0.05, 0.2, ratio=False)
_FAILED: Final = _Figure("failed requests", lambda w: _per_request(w.failed, w), 0.01, 0.05, ratio=False)
_AIMS: Final = {"ttft": _TTFT, "token": _TAIL}
_GUARDS: Final = (_TTFT, _TOKEN, _TOKENS, _PREEMPTIONS, _FAILED)
_LEAST_SECONDS: Final = 0.001


def judge(pairs: Sequence[Pair], question: Question) -> Verdict:
    """The verdict on a whole experiment: all its windows, warm-up left out, missing ones as None."""
    silent = [pair for pair in pairs if pair.control is not None and (pair.canary is None or _stuck(pair))]
    if len(silent) > (1 - LEAST_SHARE) * question.windows:
        return Verdict("rollback", f"the canary was silent or idle in {len(silent)} of {question.windows} windows")
    told = [pair for pair in pairs if _tells(pair.control) and _tells(pair.canary)]
    if len(told) < LEAST_SHARE * question.windows:
        return Verdict(
            "inconclusive",
            f"only {len(told)} of {question.windows} windows had {LEAST_REQUESTS:.0f} finished requests in both pods",
        )
    harm = next(_harms(told, question), "")
    if harm:
        return Verdict("rollback", harm)
    pressed = sum(_pressed(pair.control, question) for pair in told if pair.control)
    if pressed < PRESSED_SHARE * len(told):
        return Verdict("inconclusive", f"the control was under pressure in only {pressed} of {len(told)} windows")
    return _weighed(told, question)


def alarm(pairs: Sequence[Pair]) -> str:
    """Why an experiment must end now; empty: it may go on. Looks at the newest windows only."""
    newest = pairs[-ALARM_WINDOWS:]
    if len(newest) < ALARM_WINDOWS:
        return ""
    if all(pair.control is not None and pair.canary is None for pair in newest):
        return f"nothing was heard of the canary for {ALARM_WINDOWS} windows"
    if all(_share_failed(pair.canary) > ALARM_FAILED > 2 * _share_failed(pair.control) for pair in newest):
        return f"more than {ALARM_FAILED:.0%} of the canary's requests failed for {ALARM_WINDOWS} windows"
    for figure in (_TTFT, _TOKEN):
        if all(_far_worse(figure, pair) for pair in newest):
            return f"the canary's {figure.name} was {ALARM_TIMES:.0f} times its control's for {ALARM_WINDOWS} windows"
    if all(_stuck(pair) for pair in newest):
        return f"the canary finished nothing for {ALARM_WINDOWS} windows while its control did"
    return ""


def effect(differences: Sequence[float], block: int = BLOCK) -> Effect:
    """The mean of a series whose neighbours resemble each other, with the larger of two errors.

    Of a circular block bootstrap (Künsch 1989; Politis and Romano 1992), and of a first-order autoregression whose
    coefficient is corrected for its bias in short series (Kendall 1954).
    """
    count = len(differences)
    mean = sum(differences) / count
    rest = [each - mean for each in differences]
    return Effect(mean, max(_block_error(rest, min(block, count // 2)), _lasting_error(rest)))


def _block_error(rest: Sequence[float], block: int) -> float:
    """``rest``: differences from their mean."""
    count = len(rest)
    means = [sum(rest[(at + i) % count] for i in range(block)) / block for at in range(count)]
    blocks = count / block
    variance = sum(each**2 for each in means) / count / (blocks - 1)
    return _T99[min(int(blocks) - 1, len(_T99)) - 1] * math.sqrt(variance)


def _lasting_error(rest: Sequence[float]) -> float:
    count, squares = len(rest), sum(each**2 for each in rest)
    if not squares:
        return 0.0
    seen = sum(one * after for one, after in pairwise(rest)) / squares
    kept = min(MOST_KEPT, max(0.0, seen + (1 + 4 * seen) / count))
    return _T99[-1] * math.sqrt(squares / (count - 1) / count * (1 + kept) / (1 - kept))


def _weighed(told: Sequence[Pair], question: Question) -> Verdict:
    """Better by enough, at nobody's cost, and not because it had less to do: kept. Else the old setting stays."""
    aim = _AIMS[question.aim]
    gain, less = _effect(aim, told), _effect(_TOKENS, told)
    worth = aim.worth * (EASIER if less is None or less.mean > LESS_TO_DO else 1)
    if gain is None or gain.high > worth:
        return Verdict("inconclusive", f"{_said(aim, told)}, which may be chance")
    if less is not None and -less.mean < SIMILAR_TRAFFIC:
        return Verdict("inconclusive", f"{_said(aim, told)}, but the canary had less to do: {_said(_TOKENS, told)}")
    doubt = next(_doubts(told, question, aim), "")
    if doubt:
        return Verdict("inconclusive", f"{_said(aim, told)}, but it is not certain that nothing else suffers: {doubt}")
    return Verdict("keep", f"{_said(aim, told)} in {len(told)} windows")


def _harms(told: Sequence[Pair], question: Question) -> Iterator[str]:
    """What is certainly worse."""
    for figure in _GUARDS:
        found = _effect(figure, told)
        if found and found.low > figure.allowed and not _bought(figure, told, question):
            yield f"{_said(figure, told)}: worse"


def _doubts(told: Sequence[Pair], question: Question, aim: _Figure) -> Iterator[str]:
    """What may have become much worse, as far as anybody can tell."""
    for figure in _GUARDS:
        found = _effect(figure, told)
        if figure is aim or _bought(figure, told, question):
            continue
        if found is None:
            yield f"{figure.name} is not known"
        elif found.high > figure.unclear:
            yield _said(figure, told)


def _bought(figure: _Figure, told: Sequence[Pair], question: Question) -> bool:
    """A slower figure that still keeps well within its target; without a target, one that the whole request gains by.

    The figure that was to fall is never bought by anything.
    """
    if figure not in (_TTFT, _TOKEN) or figure is _AIMS[question.aim]:
        return False
    target = question.ttft_target_seconds if figure is _TTFT else question.token_target_seconds
    if target is not None:
        values = _values(figure, (pair.canary for pair in told))
        return bool(values) and sum(values) / len(values) <= ROOM * target
    whole = _effect(_REQUEST, told)
    return whole is not None and whole.high < 0


def _tells(window: Window | None) -> bool:
    return window is not None and window.finished is not None and window.finished >= LEAST_REQUESTS


def _pressed(window: Window, question: Question) -> bool:
    """Somebody waits, the pool is full, or a target is missed: only then does a change show what it is worth."""
    late = (
        (window.ttft_seconds, ROOM, question.ttft_target_seconds),
        (window.token_seconds, ROOM, question.token_target_seconds),
        (window.token_tail_seconds, 1.0, question.token_target_seconds),
    )
    return (
        (window.waiting or 0.0) >= QUEUE
        or (window.usage or 0.0) >= FULL
        or any(seconds is not None and target is not None and seconds > room * target for seconds, room, target in late)
    )


def _effect(figure: _Figure, told: Sequence[Pair]) -> Effect | None:
    """The figure's difference, positive where the canary is worse; None where it is not known in enough windows."""
    found = [each for pair in told if (each := _difference(figure, pair)) is not None]
    return effect(found) if len(found) >= max(2 * BLOCK, LEAST_SHARE * len(told)) else None


def _difference(figure: _Figure, pair: Pair) -> float | None:
    if pair.control is None or pair.canary is None:
        return None
    before, after = figure.value(pair.control), figure.value(pair.canary)
    if before is None or after is None:
        return None
    if not figure.ratio:
        return figure.sign * (after - before)
    return figure.sign * math.log(max(after, _LEAST_SECONDS) / max(before, _LEAST_SECONDS))


def _values(figure: _Figure, windows: Iterator[Window | None]) -> list[float]:
    return [value for window in windows if window is not None and (value := figure.value(window)) is not None]


def _said(figure: _Figure, told: Sequence[Pair]) -> str:
    """The figure of both and the change with its error."""
    found = _effect(figure, told)
    if found is None:
        return f"{figure.name}: not known"
    if not figure.ratio:
        return f"{figure.name} {figure.sign * found.mean:+.3g} (± {found.error:.2g})"
    low, high = sorted(math.expm1(figure.sign * edge) for edge in (found.low, found.high))
    return f"{figure.name} {math.expm1(figure.sign * found.mean):+.0%} (99 %: {low:+.0%} to {high:+.0%})"


def _share_failed(window: Window | None) -> float:
    """Of the requests that ended; 0 where nothing is known, since harm must be seen."""
    if window is None or window.failed is None:
        return 0.0
    return window.failed / max(1.0, window.failed + (window.finished or 0.0))


def _far_worse(figure: _Figure, pair: Pair) -> bool:
    """Many times as slow as its control, and not because more came to it."""
    if pair.control is None or pair.canary is None or not _tells(pair.control):
        return False
    ratio, done = _difference(figure, pair), _difference(_TOKENS, pair)
    return ratio is not None and done is not None and ratio > math.log(ALARM_TIMES) and done > -math.log(ALARM_LESS)


def _stuck(pair: Pair) -> bool:
    """It ends nothing, and is not just at long answers: then it makes about as many tokens as its control."""
    if not _tells(pair.control) or pair.canary is None or pair.canary.finished != 0:
        return False
    before, after = pair.control.tokens if pair.control else None, pair.canary.tokens
    return before is None or after is None or after < ALARM_LESS * before
