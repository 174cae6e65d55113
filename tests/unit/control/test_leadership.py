"""Taking, losing and giving back the lead, on a virtual clock and a Lease that can refuse, vanish or hang."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from plimsoll.adapters.ports import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnreachableError,
)
from plimsoll.control.fence import FencedCluster, NotLeadingError
from plimsoll.control.leadership import Elector, while_leading
from plimsoll.core.election import Term, Timing


class Clock:
    """Stands still until told; its stamps only ever differ, which is all that may matter."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self._stamps = 0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> str:
        return ""

    def wall_seconds(self) -> float:
        return 0.0

    def stamp(self) -> str:
        self._stamps += 1
        return f"stamp-{self._stamps}"


@dataclass
class Store:
    """One Lease. ``wrong`` is raised by every call while it is set; ``before_write`` runs between read and write."""

    term: Term | None = None
    version: int = 0
    wrong: ClusterError | None = None
    hangs: bool = False
    before_write: Callable[[], None] = lambda: None
    writes: list[Term] = field(default_factory=list)

    async def read(self) -> tuple[Term | None, str]:
        await self._fail()
        return self.term, str(self.version) if self.term else ""

    async def write(self, term: Term, version: str) -> None:
        await self._fail()
        self.before_write()
        if version != (str(self.version) if self.term else ""):
            raise ConflictError("409 changed", status=409)
        self.term, self.version = term, self.version + 1
        self.writes.append(term)

    async def _fail(self) -> None:
        if self.hangs:
            await asyncio.sleep(3600)
        if self.wrong:
            raise self.wrong


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> Store:
    return Store()


def candidate(store: Store, clock: Clock, identity: str = "me") -> Elector:
    return Elector(store, "ns/plimsoll", identity, Timing(), clock)


async def test_alone_it_leads_at_the_first_look(store: Store, clock: Clock) -> None:
    me = candidate(store, clock)
    assert await me.attempt() == 2
    assert me.leading.is_set()
    assert me.write_seconds() == pytest.approx(13)


async def test_a_standby_leads_once_the_leader_has_said_nothing_for_the_lease(store: Store, clock: Clock) -> None:
    dead, heir = candidate(store, clock, "dead"), candidate(store, clock, "heir")
    await dead.attempt()
    waited = 0.0
    while not heir.leading.is_set():
        pause = await heir.attempt()
        if not heir.leading.is_set():
            clock.seconds += pause
            waited += pause
    assert waited == pytest.approx(15)
    assert not dead.write_seconds()


async def test_what_was_given_back_is_taken_at_the_next_look(store: Store, clock: Clock) -> None:
    first, second = candidate(store, clock, "first"), candidate(store, clock, "second")
    await first.attempt()
    await second.attempt()
    await first.release()
    assert not first.leading.is_set()
    assert first.write_seconds() == 0
    await second.attempt()
    assert second.leading.is_set()


async def test_somebody_elses_lease_is_not_given_back(store: Store, clock: Clock) -> None:
    first, second = candidate(store, clock, "first"), candidate(store, clock, "second")
    await first.attempt()
    await second.attempt()
    await second.release()
    assert store.term is not None
    assert store.term.holder == "first"


async def test_two_at_once_and_one_wins(store: Store, clock: Clock) -> None:
    slow, fast = candidate(store, clock, "slow"), candidate(store, clock, "fast")

    def overtake() -> None:
        store.before_write = lambda: None
        store.term, store.version = Term("fast", 15, "", ""), 7

    store.before_write = overtake
    await slow.attempt()
    await fast.attempt()
    assert not slow.leading.is_set()
    assert slow.problem == ""
    assert fast.leading.is_set()


async def test_an_api_outage_ends_the_lead_in_time_and_its_end_brings_it_back(
    store: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    me = candidate(store, clock)
    await me.attempt()
    store.wrong = UnreachableError("no answer from the API server")
    for _ in range(4):
        clock.seconds += 2
        await me.attempt()
    assert me.leading.is_set(), "8 s without a renewal are within the deadline"
    clock.seconds += 2
    await me.attempt()
    assert not me.leading.is_set()
    assert me.write_seconds() == 0
    assert me.problem == "", "an outage is no reason to be restarted or to be called misconfigured"
    assert caplog.text.count("no answer from the API server") == 1
    store.wrong = None
    await me.attempt()
    assert me.leading.is_set()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        pytest.param(
            ForbiddenError("403 leases is forbidden", status=403),
            "grant get, create and update on leases in namespace ns",
            id="no rights",
        ),
        pytest.param(NotFoundError('404 namespaces "ns" not found', status=404), "not found", id="no such namespace"),
    ],
)
async def test_a_lease_that_cannot_be_had_is_named_once(
    store: Store, clock: Clock, caplog: pytest.LogCaptureFixture, wrong: ClusterError, says: str
) -> None:
    store.wrong = wrong
    me = candidate(store, clock)
    for _ in range(3):
        assert await me.attempt() == 2
    assert not me.leading.is_set()
    assert says in me.problem
    assert caplog.text.count("cannot be had") == 1
    store.wrong = None
    await me.attempt()
    assert me.leading.is_set()
    assert me.problem == ""


async def test_a_request_that_hangs_is_given_up_before_the_lead_ends(store: Store, clock: Clock) -> None:
    me = Elector(store, "ns/plimsoll", "me", replace(Timing(), lease_seconds=3), clock)
    await me.attempt()
    store.hangs = True
    clock.seconds += 1.99
    await me.attempt()
    clock.seconds += 0.01
    await me.attempt()
    assert not me.leading.is_set()


async def test_the_work_runs_only_while_the_lead_is_held(store: Store, clock: Clock) -> None:
    me, rival = candidate(store, clock), candidate(store, clock, "rival")
    began, ended = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def work() -> None:
        began.release()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.release()

    runner = asyncio.create_task(while_leading(me, work))
    await me.attempt()
    await began.acquire()
    store.term, store.version = Term("rival", 15, "", "theirs"), 99
    await me.attempt()
    await ended.acquire()
    await rival.release()
    clock.seconds += 15
    await me.attempt()
    await began.acquire()
    runner.cancel()
    await ended.acquire()
    with pytest.raises(asyncio.CancelledError):
        await runner


async def test_a_fault_in_the_work_is_not_swallowed(store: Store, clock: Clock) -> None:
    me = candidate(store, clock)
    await me.attempt()

    async def work() -> None:
        raise KeyError("oops")

    with pytest.raises(KeyError):
        await while_leading(me, work)


class Writes:
    """A cluster that takes every write, or never answers."""

    def __init__(self, answers: bool) -> None:
        self.made = 0
        self._answers = answers

    async def create(self, *_: object) -> dict[str, object]:
        self.made += 1
        if not self._answers:
            await asyncio.sleep(3600)
        return {}


@pytest.mark.parametrize(
    ("left", "answers", "made"),
    [
        pytest.param(0.0, True, 0, id="not leading: not even sent"),
        pytest.param(0.01, False, 1, id="sent, and given up when the lead may end"),
    ],
)
async def test_a_write_never_outlasts_the_lead(left: float, answers: bool, made: int) -> None:
    cluster = Writes(answers)
    fenced = FencedCluster(cluster, lambda: left)  # type: ignore[arg-type]
    with pytest.raises(NotLeadingError):
        await fenced.create(None, {})  # type: ignore[arg-type]
    assert cluster.made == made


async def test_the_leader_writes(store: Store, clock: Clock) -> None:
    me = candidate(store, clock)
    await me.attempt()
    cluster = Writes(answers=True)
    await FencedCluster(cluster, me.write_seconds).create(None, {})  # type: ignore[arg-type]
    assert cluster.made == 1
