"""The engine in the hands of clients who come and go: what they have been given, and what leaving frees."""

import pytest

from plimsoll.sim.blocks import BlockPool
from plimsoll.sim.engine import EngineLimits
from plimsoll.sim.live import LiveEngine
from plimsoll.sim.requests import Request
from plimsoll.sim.steps import FittedSteps

STEP = 0.01


@pytest.fixture
def engine() -> LiveEngine:
    cost = FittedSteps(STEP, 0.0, 0.0, 0.0, 0.0)
    return LiveEngine(BlockPool(41), EngineLimits(max_num_seqs=2, max_num_batched_tokens=2048), cost)


def until(engine: LiveEngine, now: float) -> list[Request]:
    done: list[Request] = []
    while engine.next_seconds <= now:
        done += engine.advance()
    engine.pause(now)
    return done


def test_a_pause_makes_what_was_produced_known(engine: LiveEngine) -> None:
    request = Request(0.0, 16, 200)
    engine.submit(request, 0.0)
    seen = []
    for tick in range(1, 6):
        until(engine, tick * 0.1)
        until(engine, tick * 0.1 + STEP)
        seen.append(engine.produced(request))
        assert engine.counters.generation_tokens == seen[-1]
    assert seen == sorted(set(seen))
    assert seen[-1] == pytest.approx(0.5 / STEP, abs=2)


def test_pausing_changes_nothing_but_when_things_are_known(engine: LiveEngine) -> None:
    other = LiveEngine(BlockPool(41), EngineLimits(2, 2048), FittedSteps(STEP, 0.0, 0.0, 0.0, 0.0))
    ends = []
    for target, pauses in ((engine, True), (other, False)):
        requests = [Request(0.0, 100, 150), Request(0.0, 200, 300), Request(0.0, 50, 100)]
        for request in requests:
            target.submit(request, 0.0)
        now = 0.0
        while target.outstanding:
            now = now + 0.033 if pauses else target.next_seconds
            until(target, now) if pauses else target.advance()
        ends.append([request.finish_seconds for request in requests])
    assert ends[0] == pytest.approx(ends[1])


def test_who_leaves_while_decoding_frees_its_blocks_within_a_step(engine: LiveEngine) -> None:
    request = Request(0.0, 160, 400)
    engine.submit(request, 0.0)
    until(engine, 1.0)
    engine.cancel(request, 1.0)
    assert until(engine, 1.0 + 2 * STEP) == [request]
    assert (engine.running, engine.usage(1.0 + 2 * STEP)) == (0, 0)


def test_who_leaves_while_waiting_is_forgotten_at_once(engine: LiveEngine) -> None:
    requests = [Request(0.0, 16, 50) for _ in range(3)]
    for request in requests:
        engine.submit(request, 0.0)
    until(engine, STEP)
    assert engine.waiting == 1
    engine.cancel(requests[2], STEP)
    assert engine.waiting == 0
    assert until(engine, 10.0) == requests[:2]


def test_who_leaves_during_its_prompt_gets_one_token_more(engine: LiveEngine) -> None:
    request = Request(0.0, 300, 50)
    engine.submit(request, 0.0)
    engine.advance()
    engine.cancel(request, 0.0)
    assert until(engine, 1.0) == [request]
    assert engine.produced(request) == 1
