"""The judge: what it says of experiments whose answer is known, and how often it is wrong about nothing at all."""

from dataclasses import replace

import pytest

from plimsoll.core.judge import WINDOWS, Aim, Pair, Question, Window, alarm, effect, judge
from tests.benchmarks.noise import Noise, pairs

SEEDS = 300
TTFT, TOKEN = Question("ttft"), Question("token")
CONTROL = Window(
    ttft_seconds=4.0,
    token_seconds=0.03,
    token_tail_seconds=0.06,
    request_seconds=12.0,
    tokens=800.0,
    finished=60.0,
    waiting=12.0,
    usage=0.4,
    preemptions=0.0,
    failed=0.0,
)


def series(control: Window | None, canary: Window | None, windows: int = WINDOWS) -> list[Pair]:
    """The same pair in every window, off by a little so that there is noise."""
    return [Pair(_off(control, at), _off(canary, at + 1)) for at in range(windows)]


def _off(window: Window | None, at: int) -> Window | None:
    if window is None or window.ttft_seconds is None:
        return window
    return replace(window, ttft_seconds=window.ttft_seconds * (1 + 0.02 * (at % 3)))


@pytest.mark.parametrize(
    ("canary", "question", "outcome", "word"),
    [
        pytest.param({"ttft_seconds": 0.5}, TTFT, "keep", "time to first token -8", id="far quicker"),
        pytest.param({"ttft_seconds": 3.2}, TTFT, "inconclusive", "chance", id="hardly quicker"),
        pytest.param({}, TTFT, "inconclusive", "chance", id="the same"),
        pytest.param({"ttft_seconds": 9.0}, TTFT, "rollback", "worse", id="slower"),
        pytest.param({"ttft_seconds": 0.5, "failed": 4.0}, TTFT, "rollback", "failed requests", id="quick and failing"),
        pytest.param({"ttft_seconds": 0.5, "preemptions": 30.0}, TTFT, "rollback", "preemptions", id="quick, preempts"),
        pytest.param(
            {"ttft_seconds": 0.5, "token_seconds": 0.06}, TTFT, "rollback", "output token", id="tokens slower"
        ),
        pytest.param(
            {"ttft_seconds": 0.5, "token_seconds": 0.06, "request_seconds": 9.0},
            TTFT,
            "keep",
            "time to first token",
            id="tokens slower, but every request is done sooner",
        ),
        pytest.param(
            {"ttft_seconds": 0.5, "token_seconds": 0.05},
            Question("ttft", token_target_seconds=0.1),
            "keep",
            "time to first token",
            id="tokens slower within their target",
        ),
        pytest.param(
            {"ttft_seconds": 0.5, "token_seconds": 0.05, "request_seconds": 9.0},
            Question("ttft", token_target_seconds=0.06),
            "rollback",
            "output token",
            id="tokens slower near their target, whatever the request gains",
        ),
        pytest.param({"token_tail_seconds": 0.04}, TOKEN, "keep", "between tokens -33", id="slow tokens quicker"),
        pytest.param({"token_seconds": 0.02}, TOKEN, "inconclusive", "chance", id="tokens quicker, slow ones as slow"),
        pytest.param({"ttft_seconds": 0.5, "tokens": 500.0}, TTFT, "rollback", "generated tokens", id="less to do"),
        pytest.param({"ttft_seconds": 0.5, "tokens": 660.0}, TTFT, "inconclusive", "less to do", id="a little less"),
        pytest.param({"ttft_seconds": 0.5, "failed": None}, TTFT, "inconclusive", "not known", id="errors not known"),
        pytest.param({"ttft_seconds": None}, TTFT, "inconclusive", "not known", id="the figure itself is not known"),
    ],
)
def test_what_it_says(canary: dict[str, float | None], question: Question, outcome: str, word: str) -> None:
    verdict = judge(series(CONTROL, replace(CONTROL, **canary)), question)
    assert (verdict.outcome, word in verdict.why) == (outcome, True), verdict


@pytest.mark.parametrize(
    ("control", "canary", "outcome", "word"),
    [
        pytest.param(CONTROL, None, "rollback", "silent", id="nothing is heard of the canary"),
        pytest.param(None, CONTROL, "inconclusive", "only 0 of", id="nothing is heard of the control"),
        pytest.param(None, None, "inconclusive", "only 0 of", id="nothing is heard at all"),
        pytest.param(Window(), Window(), "inconclusive", "only 0 of", id="pods that say nothing"),
        pytest.param(
            replace(CONTROL, finished=2.0),
            replace(CONTROL, finished=3.0),
            "inconclusive",
            "only 0 of",
            id="little traffic",
        ),
        pytest.param(
            replace(CONTROL, waiting=0.0),
            replace(CONTROL, waiting=0.0, ttft_seconds=0.5),
            "inconclusive",
            "under pressure",
            id="an idle fleet proves nothing",
        ),
    ],
)
def test_missing_is_not_zero(control: Window | None, canary: Window | None, outcome: str, word: str) -> None:
    verdict = judge(series(control, canary), TTFT)
    assert (verdict.outcome, word in verdict.why) == (outcome, True), verdict


@pytest.mark.parametrize(
    ("canary", "said"),
    [
        pytest.param(CONTROL, "", id="the same"),
        pytest.param(replace(CONTROL, ttft_seconds=8.0), "", id="twice as slow is left to the judge"),
        pytest.param(replace(CONTROL, ttft_seconds=22.0, tokens=500.0), "first token", id="slow"),
        pytest.param(replace(CONTROL, token_seconds=0.2, tokens=200.0), "output token", id="tokens"),
        pytest.param(replace(CONTROL, failed=40.0), "failed", id="errors"),
        pytest.param(replace(CONTROL, ttft_seconds=22.0), "", id="slow, and busier than its control"),
        pytest.param(replace(CONTROL, finished=0.0, tokens=0.0), "finished nothing", id="hangs"),
        pytest.param(replace(CONTROL, finished=0.0), "", id="at long answers"),
        pytest.param(replace(CONTROL, finished=0.0, tokens=None), "finished nothing", id="nobody knows at what"),
        pytest.param(None, "nothing was heard", id="silent"),
        pytest.param(Window(), "", id="figures that are not known are no harm yet"),
    ],
)
def test_an_alarm_needs_no_statistics(canary: Window | None, said: str) -> None:
    assert not alarm(series(CONTROL, canary, 2))
    found = alarm([*series(CONTROL, CONTROL, 4), *series(CONTROL, canary, 3)])
    assert said in found
    assert bool(found) == bool(said)
    assert not alarm([*series(CONTROL, canary, 3), *series(CONTROL, CONTROL, 1)])


def test_both_silent_is_no_alarm() -> None:
    assert not alarm(series(None, None, 3))


def test_neighbours_that_resemble_each_other_are_not_many_observations() -> None:
    apart = [0.1, -0.1] * 12
    alike = [0.1] * 12 + [-0.1] * 12
    assert effect(alike).error > 2 * effect(apart).error
    assert effect(apart).mean == pytest.approx(0.0)


@pytest.mark.parametrize("aim", ["ttft", "token"])
def test_nothing_changed_is_rarely_called_a_change(aim: Aim) -> None:
    """Of experiments with the same flags in both pods at most 5 % may end in a verdict, alarms included."""
    question = Question(aim)
    wrong = [seed for seed in range(SEEDS) if _ended(pairs(seed, Noise()), question)]
    assert len(wrong) <= 0.05 * SEEDS, wrong


def _ended(found: list[Pair], question: Question) -> bool:
    alarmed = any(alarm(found[: at + 1]) for at in range(len(found)))
    return alarmed or judge(found, question).outcome != "inconclusive"
