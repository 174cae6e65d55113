"""The rules of vLLM's scheduler, one by one, and the jumping engine against one that takes every step."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.sim.blocks import BlockPool
from plimsoll.sim.engine import NEVER, Engine, EngineLimits
from plimsoll.sim.requests import Request
from plimsoll.sim.steps import FittedSteps

STEPS = FittedSteps(0.01, 0.0, 1e-5, 1e-7, 1e-9, 0.0)
EVEN = FittedSteps(1.0, 0.0, 0.0, 0.0, 0.0)
"""Every step takes a second, so that times can be counted."""


def run(engine: Engine, requests: Sequence[Request]) -> None:
    coming = deque(sorted(requests, key=lambda r: r.arrival_seconds))
    while coming or engine.next_seconds < NEVER:
        if coming and coming[0].arrival_seconds <= engine.next_seconds:
            request = coming.popleft()
            engine.submit(request, request.arrival_seconds)
        else:
            engine.advance()


def engine(
    blocks: int, max_num_seqs: int = 256, budget: int = 2048, *, size: int = 16, caching: bool = False
) -> Engine:
    return Engine(BlockPool(blocks + 1, size), EngineLimits(max_num_seqs, budget, caching), EVEN)


def test_the_first_token_ends_the_prefill_and_each_later_one_takes_a_step() -> None:
    request = Request(0.0, 100, 5)
    run(engine(100), [request])
    assert (request.first_token_seconds, request.finish_seconds) == (1.0, 5.0)


def test_a_long_prompt_is_chunked_by_the_token_budget() -> None:
    request = Request(0.0, 5000, 1)
    run(engine(1000), [request])
    assert request.first_token_seconds == 3.0


def test_decodes_are_served_before_prefills_share_what_is_left_of_the_budget() -> None:
    first, second = Request(0.0, 16, 100), Request(1.5, 16, 2)
    run(engine(100, budget=16), [first, second])
    # The step that begins at 2 has one token for the first and 15 of the 16 prompt tokens: two steps are needed.
    assert second.first_token_seconds == 4.0


def test_the_sequence_cap_keeps_the_rest_waiting() -> None:
    fleet = engine(1000, max_num_seqs=2)
    for _ in range(5):
        fleet.submit(Request(0.0, 10, 50), 0.0)
    fleet.advance()
    fleet.advance()
    assert (fleet.running, fleet.waiting) == (2, 3)


def test_a_head_of_line_that_does_not_fit_blocks_those_behind_it() -> None:
    runs, large, small = Request(0.0, 64, 60), Request(1.0, 128, 2), Request(2.0, 16, 2)
    run(engine(10), [runs, large, small])
    assert large.scheduled_seconds >= runs.finish_seconds
    assert small.scheduled_seconds >= large.scheduled_seconds


def test_admission_needs_blocks_for_the_prompt_but_not_for_the_output() -> None:
    first, second = Request(0.0, 32, 40), Request(0.0, 32, 40)
    fleet = engine(5)
    run(fleet, [first, second])
    assert (first.scheduled_seconds, second.scheduled_seconds) == (0.0, 0.0)
    assert fleet.counters.preemptions == 1


def test_the_newest_is_preempted_loses_its_blocks_and_computes_everything_anew() -> None:
    first, second = Request(0.0, 32, 40), Request(0.0, 32, 40)
    fleet = engine(5)
    run(fleet, [first, second])
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert first.finish_seconds == 40.0
    # The blocks are full at once: the second makes one token, waits for the first, and then computes its 33 tokens.
    assert second.first_token_seconds == 1.0
    assert second.finish_seconds == 40.0 + 39
    assert fleet.counters.prefilled_tokens == 32 + 32 + 33


def test_preempted_requests_count_as_waiting_and_come_first() -> None:
    fleet = engine(5)
    requests = [Request(0.0, 32, 40), Request(0.0, 32, 40), Request(0.5, 16, 2)]
    for request in requests[:2]:
        fleet.submit(request, 0.0)
    fleet.advance()
    fleet.submit(requests[2], 0.5)
    fleet.advance()
    assert (fleet.running, fleet.waiting) == (1, 2)
    run(fleet, [])
    assert requests[2].scheduled_seconds >= requests[0].finish_seconds


def test_usage_is_over_the_blocks_without_the_null_block() -> None:
    fleet = engine(127, size=32)
    fleet.submit(Request(0.0, 32 * 36, 5), 0.0)
    fleet.advance()
    assert fleet.usage(0.5) == pytest.approx(36 / 127)


def test_usage_grows_while_a_stretch_is_under_way() -> None:
    fleet = engine(100)
    fleet.submit(Request(0.0, 16, 200), 0.0)
    fleet.advance()
    fleet.advance()
    assert fleet.usage(1.0) == pytest.approx(1 / 100)
    assert fleet.usage(40.0) == pytest.approx(4 / 100)


def test_usage_is_zero_when_idle_though_the_cache_is_full() -> None:
    fleet = engine(100, caching=True)
    run(fleet, [Request(0.0, 800, 20, prefix=(("system", 800),))])
    assert fleet.usage(1000.0) == 0.0


def test_a_cached_prefix_is_not_computed_again_and_is_held_once() -> None:
    fleet = engine(100, caching=True)
    prefix = (("system", 320),)
    first, second = Request(0.0, 400, 100, prefix), Request(5.5, 400, 100, prefix)
    run(fleet, [first, second])
    assert (fleet.counters.prefix_queried_tokens, fleet.counters.prefix_hit_tokens) == (800, 320)
    assert fleet.counters.prefilled_tokens == 800 - 320


def test_shared_blocks_are_counted_once() -> None:
    fleet = engine(100, caching=True)
    for _ in range(3):
        fleet.submit(Request(0.0, 336, 100, (("system", 320),)), 0.0)
    fleet.advance()
    fleet.advance()
    assert fleet.usage(1.0) == pytest.approx((20 + 3) / 100)


def test_the_cache_forgets_the_least_recently_used_first() -> None:
    fleet = engine(30, caching=True)
    prompts = [Request(float(100 * i), 160, 2, ((name, 160),)) for i, name in enumerate("abcab")]
    run(fleet, prompts)
    # a, b and c fill the pool; running "a" again takes blocks of the oldest, which are b's.
    assert fleet.counters.prefix_hit_tokens < 2 * 160
    assert fleet.counters.prefix_hit_tokens >= 144


def test_a_whole_prompt_in_the_cache_still_computes_its_last_token() -> None:
    fleet = engine(100, caching=True)
    prefix = (("all", 160),)
    run(fleet, [Request(0.0, 160, 2, prefix), Request(10.0, 160, 2, prefix)])
    assert fleet.counters.prefix_hit_tokens == 159


def test_sliding_windows_stop_growing_and_states_take_the_same_at_any_length() -> None:
    pool = BlockPool(1001, 16, full_groups=1, capped_groups=(4,), state_blocks=2)
    fleet = Engine(pool, EngineLimits(8, 2048), EVEN)
    fleet.submit(Request(0.0, 16, 500), 0.0)
    fleet.advance()
    fleet.advance()
    assert fleet.usage(1.0) == pytest.approx((1 + 1 + 2) / 1000)
    while fleet.next_seconds < 400:
        fleet.advance()
    assert fleet.usage(400.0) == pytest.approx((pool.blocks(16 + 399)) / 1000)
    assert pool.blocks(16 + 399) == 26 + 4 + 2


def test_a_request_larger_than_the_pool_is_not_held() -> None:
    assert not engine(10).holds(Request(0.0, 160, 1))
    assert engine(10).holds(Request(0.0, 100, 60))


def test_a_dead_engine_leaves_its_requests_behind() -> None:
    fleet = engine(100)
    requests = [Request(0.0, 16, 10) for _ in range(3)]
    for request in requests:
        fleet.submit(request, 0.0)
    fleet.advance()
    assert fleet.abandon() == requests
    assert fleet.next_seconds == NEVER


@dataclass(eq=False)
class Slow:
    """The same rules, one step at a time, with nothing clever: what the jumping engine has to equal."""

    blocks: int
    size: int
    max_num_seqs: int
    budget: int
    cost: FittedSteps
    now: float = 0.0
    waiting: list["_Slow"] = field(default_factory=list)
    running: list["_Slow"] = field(default_factory=list)
    preemptions: int = 0

    def rows(self, tokens: int) -> int:
        return -(-tokens // self.size)

    @property
    def free(self) -> int:
        return self.blocks - sum(r.held for r in self.running)

    def step(self) -> None:
        preempted = self.make_room()
        decoding = [r for r in self.running if r.computed >= r.target]
        context = sum(r.computed for r in decoding)
        chunks, completed = self.prefill(self.budget - len(decoding), admit=not preempted)
        if chunks:
            self.now += self.cost.mixed_seconds(len(decoding), context, chunks)
        else:
            fixed, slope = self.cost.decode_line(len(decoding))
            self.now += fixed + slope * context
        for request in decoding:
            request.computed += 1
        for request in decoding + completed:
            self.token(request)

    def make_room(self) -> bool:
        preempted = False
        for request in list(self.running):
            if request.computed < request.target:
                continue
            while request in self.running and self.rows(request.computed + 1) - request.held > self.free:
                self.preempt(self.running[-1])
                preempted = True
            if request in self.running:
                request.held = self.rows(request.computed + 1)
        return preempted

    def prefill(self, budget: int, *, admit: bool) -> tuple[list[tuple[int, int]], list["_Slow"]]:
        chunks: list[tuple[int, int]] = []
        completed: list[_Slow] = []
        turns = [r for r in self.running if r.computed < r.target]
        while budget > 0 and (turns or (admit and self.waiting and self.admissible(self.waiting[0]))):
            request = turns.pop(0) if turns else self.admit()
            chunk = min(budget, request.target - request.computed)
            chunks.append((chunk, request.computed))
            request.computed += chunk
            budget -= chunk
            if request.computed >= request.target:
                completed.append(request)
        return chunks, completed

    def admit(self) -> "_Slow":
        request = self.waiting.pop(0)
        request.target = request.prompt + request.made
        request.held = self.rows(request.target)
        self.running.append(request)
        return request

    def token(self, request: "_Slow") -> None:
        request.made += 1
        request.first = min(request.first, self.now)
        if request.made >= request.output:
            request.finish = self.now
            self.running.remove(request)

    def admissible(self, request: "_Slow") -> bool:
        return len(self.running) < self.max_num_seqs and self.rows(request.prompt + request.made) <= self.free

    def preempt(self, request: "_Slow") -> None:
        self.running.remove(request)
        request.computed = request.held = 0
        request.target = 1 << 60
        self.waiting.insert(0, request)
        self.preemptions += 1


@dataclass(eq=False)
class _Slow:
    arrival: float
    prompt: int
    output: int
    target: int = 0
    computed: int = 0
    held: int = 0
    made: int = 0
    first: float = NEVER
    finish: float = NEVER


def slowly(requests: Sequence[tuple[float, int, int]], slow: Slow) -> list[_Slow]:
    all_of_them = [_Slow(*request) for request in requests]
    coming = deque(all_of_them)
    while coming or slow.running or slow.waiting:
        if not slow.running and not slow.waiting:
            slow.now = max(slow.now, coming[0].arrival)
        while coming and coming[0].arrival <= slow.now:
            slow.waiting.append(coming.popleft())
        slow.step()
    return all_of_them


traffic = st.lists(st.tuples(st.floats(0, 5), st.integers(1, 200), st.integers(1, 80)), min_size=1, max_size=25).map(
    lambda rows: sorted(rows, key=lambda row: row[0])
)


@settings(max_examples=100, deadline=None)
@given(traffic, st.integers(18, 80), st.integers(1, 12), st.integers(16, 300))
def test_jumping_equals_taking_every_step(
    requests: list[tuple[float, int, int]], blocks: int, max_num_seqs: int, budget: int
) -> None:
    fast = Engine(BlockPool(blocks + 1), EngineLimits(max_num_seqs, budget, prefix_caching=False), STEPS)
    served = [Request(*request) for request in requests]
    run(fast, served)
    slow = Slow(blocks, 16, max_num_seqs, budget, STEPS)
    expected = slowly(requests, slow)
    assert fast.counters.preemptions == slow.preemptions
    for got, want in zip(served, expected, strict=True):
        assert got.first_token_seconds == pytest.approx(want.first)
        assert got.finish_seconds == pytest.approx(want.finish)
    assert (fast.running, fast.waiting) == (0, 0)
    assert fast.usage(fast.next_seconds) == 0.0
