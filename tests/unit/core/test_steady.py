"""One noisy tick says nothing; what holds is said; a figure is told again when it has moved by a tenth."""

from dataclasses import dataclass

import pytest

from plimsoll.core.steady import Steady, close


@dataclass(frozen=True)
class Word:
    word: str
    figures: tuple[float, ...] = ()
    patience: int = 2


def said(text: str, patience: int = 2) -> str:
    """What is said after each tick of a sequence of one-letter words; "." is nothing yet."""
    steady: Steady[Word] = Steady()
    told = ""
    for letter in text:
        steady = steady.after(Word(letter, patience=patience))
        told += steady.said.word if steady.said else "."
    return told


@pytest.mark.parametrize(
    ("ticks", "patience", "expect"),
    [
        ("aaaa", 2, ".aaa"),
        ("aabbaa", 2, ".aabba"),
        ("aabaab", 2, ".aaaaa"),
        ("aaabcbcbc", 3, "..aaaaccc"),
        ("aaaabcbcb", 4, "...aaaacc"),
        ("aaaaabcbcbc", 5, "....aaaaaaa"),
    ],
    ids=["first", "a change that holds", "a blip", "never the old one again", "nor for the patient", "but for those"],
)  # fmt: skip
def test_what_is_said(ticks: str, patience: int, expect: str) -> None:
    assert said(ticks, patience) == expect


@pytest.mark.parametrize(
    ("before", "now", "expect"),
    [((0.5,), (0.55,), True), ((0.5,), (0.61,), False), ((10.0,), (10.9,), True), ((10.0,), (12.0,), False),
     ((0.0,), (0.1,), False), ((), (), True), ((1.0,), (), False)],
)  # fmt: skip
def test_figures_move_in_steps(before: tuple[float, ...], now: tuple[float, ...], expect: bool) -> None:
    assert close(before, now) is expect


def test_the_sentence_stays_until_its_figures_move() -> None:
    steady: Steady[Word] = Steady()
    for figure in (0.50, 0.50, 0.55, 0.59, 0.61):
        steady = steady.after(Word("a", (figure,)))
    assert steady.said == Word("a", (0.61,))
    assert steady.after(Word("a", (0.65,))).said == Word("a", (0.61,))
