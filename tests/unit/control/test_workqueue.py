"""The queue's promises: one at a time, nothing lost, failing keys wait alone."""

import asyncio

import pytest

from plimsoll.control.workqueue import BACKOFF_MAX_SECONDS, MOST_BEHIND_SECONDS, WorkQueue


class FakeTime:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> FakeTime:
    return FakeTime()


@pytest.fixture
def queue(clock: FakeTime) -> WorkQueue[str]:
    return WorkQueue(clock)


async def test_first_come_first_served_and_each_key_once(queue: WorkQueue[str]) -> None:
    for key in ("a", "b", "a", "c"):
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]
    assert len(queue) == 0


async def test_who_is_put_first_passes_those_in_line_and_nobody_else(queue: WorkQueue[str]) -> None:
    for key in ("a", "b"):
        queue.add(key)
    queue.put_first("b")
    queue.put_first("c")
    assert [await queue.get() for _ in range(2)] == ["b", "a"]
    assert len(queue) == 0


async def test_who_has_time_comes_when_nobody_else_is_in_line(queue: WorkQueue[str], clock: FakeTime) -> None:
    for key in ("idle", "edited", "asked"):
        queue.add_behind(key)
    queue.add("new")
    queue.add("edited")
    queue.put_first("asked")
    assert len(queue) == 4
    assert [await queue.get() for _ in range(4)] == ["asked", "new", "edited", "idle"]
    queue.add_behind("idle")
    assert len(queue) == 0, "it is in work, and looks at what there is"
    clock.seconds += 1
    assert queue.oldest_seconds == 0


async def test_who_has_time_does_not_wait_for_ever(queue: WorkQueue[str], clock: FakeTime) -> None:
    queue.add_behind("idle")
    clock.seconds += MOST_BEHIND_SECONDS - 1
    queue.add("new")
    assert await queue.get() == "new"
    queue.add("newer")
    clock.seconds += 1
    assert [await queue.get(), await queue.get()] == ["idle", "newer"]


async def test_who_failed_is_not_hurried_by_who_has_time(queue: WorkQueue[str]) -> None:
    queue.add("failed")
    await queue.get()
    queue.retry("failed")
    queue.done("failed")
    queue.add_behind("failed")
    assert len(queue) == 0


async def test_a_key_in_work_runs_once_more_afterwards_never_beside(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_backoff_doubles_to_its_limit_and_starts_anew_after_success(queue: WorkQueue[str]) -> None:
    waits = [queue.retry("a") for _ in range(9)]
    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == BACKOFF_MAX_SECONDS
    queue.forget("a")
    assert queue.retry("a") == 1


async def test_a_key_that_failed_rests_a_second_whatever_happens_around_it(
    queue: WorkQueue[str], clock: FakeTime
) -> None:
    queue.retry("a")
    queue.retry("a")
    for clock.seconds in (0.2, 0.4, 0.9):
        queue.add("a")
        assert len(queue) == 0
    clock.seconds = 1.0
    assert await queue.get() == "a"
    queue.forget("a")
    queue.done("a")
    queue.add("a")
    assert len(queue) == 1


async def test_the_servers_own_wish_counts_when_longer(queue: WorkQueue[str]) -> None:
    assert queue.retry("a", 7.0) == 7
    assert queue.retry("b", 0.1) == 1


async def test_a_delayed_key_comes_when_its_time_has_come(queue: WorkQueue[str], clock: FakeTime) -> None:
    queue.add_after("late", 10)
    queue.add("now")
    assert await queue.get() == "now"
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not getter.done()
    clock.seconds = 10
    queue.add_after("wake", 100)
    assert await getter == "late"


async def test_of_several_delays_the_earliest_counts(queue: WorkQueue[str], clock: FakeTime) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 20)
    clock.seconds = 5
    assert await queue.get() == "a"
    queue.done("a")
    clock.seconds = 30
    queue.add("b")
    assert await queue.get() == "b"
    assert len(queue) == 0


async def test_work_in_between_makes_an_earlier_wish_void(queue: WorkQueue[str], clock: FakeTime) -> None:
    """Every service was looked at twice in ten minutes: once by its own wish, and once after the sweep."""
    queue.add_after("a", 600)
    clock.seconds = 300
    queue.add_behind("a")
    assert await queue.get() == "a"
    queue.add_after("a", 600)  # while it is in work: not void
    queue.done("a")
    clock.seconds = 700
    queue.add("b")
    assert await queue.get() == "b"
    assert len(queue) == 0
    clock.seconds = 900
    queue.add("b")
    assert await queue.get() == "a"


async def test_a_time_that_is_over_but_for_a_rounding_error_ends(queue: WorkQueue[str], clock: FakeTime) -> None:
    """Found by the rig: a key was worked on for ever, since adding the rest of its time did not move the clock."""
    clock.seconds = 1562.3900029999998
    queue.add_after("a", 5.3290705182007514e-14)
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not getter.done()
    clock.seconds += 0.001
    queue.add("b")
    assert await getter == "b"
    assert await queue.get() == "a"


async def test_a_waiting_worker_wakes_for_a_new_key(queue: WorkQueue[str]) -> None:
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await getter == "a"


async def test_two_waiting_workers_both_wake(queue: WorkQueue[str]) -> None:
    getters = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    assert sorted(await asyncio.gather(*getters)) == ["a", "b"]


async def test_the_oldest_wait_is_told(queue: WorkQueue[str], clock: FakeTime) -> None:
    assert queue.oldest_seconds == 0
    queue.add("a")
    clock.seconds = 3
    assert queue.oldest_seconds == 3


async def test_before_the_servers_own_wish_no_event_makes_it_run(queue: WorkQueue[str], clock: FakeTime) -> None:
    queue.retry("a", at_least_seconds=9)
    queue.add("a")
    clock.seconds += 8
    queue.add("a")
    assert len(queue) == 0
    clock.seconds += 1
    assert await queue.get() == "a"
