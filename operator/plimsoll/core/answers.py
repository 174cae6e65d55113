"""How far a candidate's answers are from a baseline's: the comparison of the built-in quality gate. Pure.

Both engines continue the same prompts, always with the likeliest token. Two things are compared. *Answers*: the share
of prompts whose continuation begins with the same word, which is where the answer of such prompts stands; further on
two right answers part anyway. *Log-probabilities*: of each token of the baseline's continuation, as long as both have
said the same before it, the baseline's against the candidate's; the mean distance ``d`` counts as ``exp(-d)``. The
score is the smaller of the two, so neither makes up for the other.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

THRESHOLD: Final = 0.95
LIKELIEST: Final = 5
"""Alternatives that are asked for with each token."""
LINES: Final = (40, 120, 240)
"""Lengths of the lists that are asked about: an error of the KV cache shows where much of it is read."""
_TOKENS_PER_LINE: Final = 14
_WORDS: Final = (
    "amber", "basil", "cedar", "delta", "ember", "flint", "grove", "heron", "ivory", "jasper", "kelp", "lilac",
    "maple", "nectar", "onyx", "pearl", "quartz", "raven", "sable", "tulip", "umber", "violet", "willow", "zephyr",
)  # fmt: skip
_KNOWN: Final = (
    "The capital of France is", "The capital of Japan is", "Water freezes at a temperature of zero degrees",
    "Two plus two equals", "Seven times eight equals", "The opposite of hot is", "The first month of the year is",
    "One, two, three, four,", "Monday, Tuesday, Wednesday,", "The chemical symbol of gold is",
    "A triangle has three sides and a square has", "The largest planet of the solar system is",
    "In the alphabet, the letter after C is", "The past tense of go is", "How many eggs are a dozen? The answer is",
    "The sun rises in the",
)  # fmt: skip


@dataclass(frozen=True)
class Token:
    """One token of a continuation: its text, its log-probability, and those of the likeliest in its place."""

    text: str
    logprob: float
    likeliest: Mapping[str, float]


@dataclass(frozen=True)
class Compared:
    """One prompt, continued by both."""

    same_answer: bool
    distances: tuple[float, ...]
    """Of log-probabilities, a token each."""


@dataclass(frozen=True)
class Score:
    """What came of all prompts."""

    prompts: int
    answers: float
    """Share of prompts with the same first word of an answer."""
    distance: float
    """Mean distance of log-probabilities, in nats."""

    @property
    def value(self) -> float:
        """Between 0 and 1; 1: no difference was seen."""
        return min(self.answers, math.exp(-self.distance))


class UnreadableAnswerError(ValueError):
    """An engine's answer is not what the OpenAI API says it is."""


def prompts(context_tokens: int | None) -> tuple[str, ...]:
    """The built-in prompts: short ones whose answer every model knows, and lists to be remembered, as long as fit."""
    lists = [n for n in LINES if context_tokens is None or 2 * n * _TOKENS_PER_LINE <= context_tokens]
    return (*_KNOWN, *(prompt for count in lists for prompt in _about(count)))


def read_completion(answer: Mapping[str, Any]) -> list[Token]:
    """The tokens of an answer of ``/v1/completions``.

    Raises:
        UnreadableAnswerError: it holds no log-probabilities.
    """
    try:
        found = answer["choices"][0]["logprobs"]
        likeliest = found.get("top_logprobs") or [{}] * len(found["tokens"])
        rows = zip(found["tokens"], found["token_logprobs"], likeliest, strict=True)
        return [Token(str(text), float(logprob), dict(others or {})) for text, logprob, others in rows]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableAnswerError(f"no log-probabilities in the answer: {type(error).__name__} {error}") from None


def compare(baseline: Sequence[Token], candidate: Sequence[Token]) -> Compared:
    """One prompt's two continuations."""
    return Compared(_first_word(baseline) == _first_word(candidate), tuple(_distances(baseline, candidate)))


def score(compared: Sequence[Compared]) -> Score:
    """All prompts together; without a single one, or without a token, there is nothing that could be the same."""
    distances = [distance for each in compared for distance in each.distances]
    if not distances:
        return Score(len(compared), 0.0, math.inf)
    same = sum(each.same_answer for each in compared) / len(compared)
    return Score(len(compared), same, math.fsum(distances) / len(distances))


def _distances(baseline: Sequence[Token], candidate: Sequence[Token]) -> list[float]:
    found = []
    for ours, theirs in zip(baseline, candidate, strict=False):
        same = ours.text == theirs.text
        # What is not among the candidate's likeliest is less likely than the least of them.
        least = min(theirs.likeliest.values(), default=theirs.logprob)
        found.append(abs(ours.logprob - (theirs.logprob if same else theirs.likeliest.get(ours.text, least))))
        if not same:
            break
    return found


def _first_word(tokens: Sequence[Token]) -> str:
    text = "".join(token.text for token in tokens)
    found = re.search(r"\w+", text)
    return found[0].casefold() if found else text.strip()


def _about(count: int) -> list[str]:
    """Questions about a list of codes, of its beginning, its middle and its end."""
    codes = {f"{_WORDS[n % len(_WORDS)]}-{n}": (7919 * (n + count)) % 9000 + 1000 for n in range(count)}
    text = "".join(f"The code of {name} is {code}.\n" for name, code in codes.items())
    named = [*codes]
    asked = (named[1], named[count // 2], named[-2])
    return [f"{text}\nQuestion: which code is that of {name}?\nAnswer: The code of {name} is" for name in asked]
