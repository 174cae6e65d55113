"""Experiments on the simulator: pairs are of the same time and traffic, and nothing changed is not called a change."""

from dataclasses import replace

import pytest

from plimsoll.core.judge import Pair, Question, alarm, judge
from plimsoll.sim.models import EngineModel, engine_model
from plimsoll.sim.paired import NO_TROUBLE, Split, Trouble, paired
from plimsoll.sim.traces import made

WINDOWS = 25
SECONDS = 240 + 60 * WINDOWS


def capped(sequences: int) -> EngineModel:
    model = engine_model("rtx4090-llama-3.1-8b")
    return replace(model, limits=replace(model.limits, max_num_seqs=sequences))


def run(
    control: int, canary: int, rate: float, seed: int, split: Split = "random", trouble: Trouble = NO_TROUBLE
) -> list[Pair]:
    requests = made(lambda _: rate, rate, SECONDS, 200, 100, seed=seed)
    models = capped(control), capped(canary)
    return list(paired(*models, requests, windows=WINDOWS, split=split, seed=seed, trouble=trouble))


SATURATED = 5.0
"""Requests a second at which an engine of 6 sequences is busy 95 % of the time."""


def test_pairs_are_counted_without_the_warm_up() -> None:
    pairs = run(8, 8, 1.0, 1)
    assert len(pairs) == WINDOWS
    assert all(pair.control is not None and pair.control.finished for pair in pairs)


@pytest.mark.parametrize("split", ["random", "least"])
def test_a_higher_cap_is_kept_where_the_cap_is_what_limits(split: Split) -> None:
    assert judge(run(6, 12, SATURATED, 3, split), Question("ttft")).outcome == "keep"
    assert judge(run(12, 6, SATURATED, 3, split), Question("ttft")).outcome == "rollback"


def test_nothing_changed_is_rarely_called_a_change_even_near_saturation() -> None:
    ends = [judge(run(6, 6, SATURATED, seed), Question("ttft")).outcome for seed in range(10)]
    assert "keep" not in ends
    assert ends.count("rollback") <= 1


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(Trouble(crashes_seconds=600), id="crashes"),
        pytest.param(Trouble(hangs_seconds=600), id="hangs"),
        pytest.param(Trouble(crashes_above=90), id="out of memory under load"),
    ],
)
def test_a_canary_in_trouble_ends_the_experiment_within_minutes(trouble: Trouble) -> None:
    pairs = run(6, 12, SATURATED, 4, trouble=trouble)
    first = next(at for at in range(len(pairs) + 1) if alarm(pairs[:at]))
    assert first <= 600 / 60 + 4
    assert judge(pairs, Question("ttft")).outcome == "rollback"
