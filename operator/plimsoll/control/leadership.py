"""Takes, renews and gives back the Lease; runs what only the leader may do for as long as it is held.

An operator that loses the lead goes back to waiting in the same process: an API server that is away for a minute costs
every leader its Lease, and must not become a crash loop (docs/adr/0026).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from plimsoll import metrics
from plimsoll.adapters.ports import Clock, ClusterError, ConflictError, ForbiddenError, LeaseStore, UnreachableError
from plimsoll.control.supervise import first_of
from plimsoll.core.election import (
    Sight,
    Step,
    Tenure,
    Timing,
    decide,
    expires,
    next_term,
    released,
    sighted,
)

log = logging.getLogger("plimsoll.leadership")


@dataclass
class Elector:
    """One candidate for one Lease. ``name`` is the Lease's namespace/name, ``identity`` unique to this process."""

    store: LeaseStore
    name: str
    identity: str
    timing: Timing
    clock: Clock
    leading: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    attempted: asyncio.Event = field(default_factory=asyncio.Event)
    """The Lease was looked at once, well or not."""
    problem: str = ""
    """Why the Lease cannot be had until somebody changes something; empty when there is no such reason."""
    led_since_seconds: float = 0.0
    """When the present lead began, on our clock."""
    _tenure: Tenure = field(init=False)
    _sight: Sight | None = None
    _told: str = ""

    def __post_init__(self) -> None:
        self._tenure = Tenure(self.timing)
        self.waiting.set()

    def write_seconds(self) -> float:
        """How long a write that starts now may take; 0: this process may not write."""
        return self._tenure.write_seconds(self.clock.monotonic())

    async def run(self) -> None:
        """Look at the Lease until cancelled."""
        while True:
            pause_seconds = await self.attempt()
            await asyncio.sleep(pause_seconds)

    async def attempt(self) -> float:
        """Take or renew the Lease if it may be; the seconds until the next look. Never raises for an expected fault."""
        try:
            async with asyncio.timeout(self._patience_seconds()):
                await self._step()
        except ConflictError:
            pass  # somebody was faster: the next look shows who
        except (ClusterError, TimeoutError) as error:
            self._explain(error)
        else:
            self.problem = ""
        self._notice()
        self.attempted.set()
        return self._pause_seconds()

    async def release(self) -> None:
        """Give the Lease back, so that the next may start at once. Only after everything that writes has ended."""
        held, self._tenure = self._tenure.leads(self.clock.monotonic()), Tenure(self.timing)
        self._notice()
        if not held:
            return
        try:
            async with asyncio.timeout(self.timing.retry_seconds):
                term, version = await self.store.read()
                if term and term.holder == self.identity:
                    await self.store.write(released(term, self.clock.stamp()), version)
                    log.info("gave back Lease %s", self.name)
        except (ClusterError, TimeoutError) as error:
            log.warning("Lease %s not given back, it will run out by itself: %s", self.name, _text(error))

    async def _step(self) -> None:
        term, version = await self.store.read()
        now = self.clock.monotonic()
        self._sight = sighted(self._sight, term, version, now)
        step = decide(self._sight, self.identity, self.timing, now)
        if step is Step.WAIT:
            self._tenure = Tenure(self.timing)
            self._tell(f"standing by: Lease {self.name} is held by {term.holder if term else 'nobody'}")
            return
        await self.store.write(next_term(term, self.identity, self.timing, self.clock.stamp()), version)
        self._tenure = Tenure(self.timing, now)

    def _patience_seconds(self) -> float:
        """A hanging request is given up early enough for a second try, and never later than the lead ends."""
        now, half = self.clock.monotonic(), self.timing.deadline_seconds / 2
        renewed = self._tenure.renewed_seconds
        if renewed is None or not self._tenure.leads(now):
            return half
        return min(half, renewed + self.timing.deadline_seconds - now)

    def _pause_seconds(self) -> float:
        if self.leading.is_set() or self._sight is None:
            return self.timing.retry_seconds
        left = expires(self._sight, self.timing) - self.clock.monotonic()
        return min(self.timing.retry_seconds, left) if left > 0 else self.timing.retry_seconds

    def _notice(self) -> None:
        """Tell those who wait when the lead has begun or ended."""
        now = self.clock.monotonic()
        leads = self._tenure.leads(now)
        metrics.LEADER.set(leads)
        if leads == self.leading.is_set():
            return
        if leads:
            self.led_since_seconds = now
            self.waiting.clear()
            self.leading.set()
            self._tell(f"leading: holds Lease {self.name} as {self.identity}")
        else:
            self.leading.clear()
            self.waiting.set()
            self._tell(f"not leading any more: writing has stopped (Lease {self.name})")

    def _explain(self, error: ClusterError | TimeoutError) -> None:
        text = f"Lease {self.name} cannot be had: {_text(error)}"
        if isinstance(error, ForbiddenError):
            text += f"; grant get, create and update on leases in namespace {self.name.partition('/')[0]}"
        self.problem = "" if isinstance(error, UnreachableError | TimeoutError) else text
        if self._told != text:
            self._told = text
            log.warning("%s", text)

    def _tell(self, text: str) -> None:
        if self._told != text:
            self._told = text
            log.info("%s", text)


async def while_leading(elector: Elector, work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run the work for as long as the lead is held, each time anew, for ever.

    What is cancelled may take a moment to end; it cannot write meanwhile (``control/fence.py``).
    """
    while True:
        await elector.leading.wait()
        await first_of(work(), elector.waiting.wait())


def _text(error: ClusterError | TimeoutError) -> str:
    return error.message if isinstance(error, ClusterError) else "no answer in time"
