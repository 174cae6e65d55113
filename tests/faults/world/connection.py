"""One process' way to the API server: the Cluster port, with latency, and with whatever goes wrong on the way.

Every call passes ``Interference``: it may be refused, lost on its way back, held up, or be the last thing the process
does. Replies reach a process only while it runs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar

from plimsoll.adapters.ports import LEASES, PODS, SERVICES, Change, ClusterError, Kind, Object, UnreachableError
from plimsoll.api import names
from tests.faults.world.api import Api, matcher
from tests.faults.world.kinds import UnfaithfulError, traits
from tests.faults.world.store import Address, Event
from tests.faults.world.virtual_time import Agenda, ProcessLoop

LATENCY_SECONDS: Final = 0.004
WATCH_LATENCY_SECONDS: Final = 0.010
WATCH_SECONDS: Final = 240.0
TIMEOUT_SECONDS: Final = 15.0
MANAGER: Final = "python"
"""Field manager of what is not applied: Events and Leases."""

Answer = TypeVar("Answer")
Verb = Literal["get", "list", "watch", "apply", "delete", "create", "replace", "log"]
WRITES: Final = ("apply", "delete", "create", "replace")


@dataclass(frozen=True)
class Call:
    """One request as it is about to be sent."""

    verb: Verb
    kind: Kind
    namespace: str | None
    name: str
    subresource: str
    body: Mapping[str, Any] | None
    at_seconds: float

    @property
    def is_write(self) -> bool:
        """It may change something."""
        return self.verb in WRITES

    def __str__(self) -> str:
        door = f"/{self.subresource}" if self.subresource else ""
        return f"{self.verb} {self.kind.kind}{door} {self.namespace or '*'}/{self.name or '*'}"


@dataclass(frozen=True)
class Fate:
    """What becomes of a call. By default it is sent, and answered."""

    sent: bool = True
    error: ClusterError | None = None
    """Raised instead of the answer; of a call that is ``sent``, the API server has done it all the same."""
    hold_seconds: float = 0.0
    """So much later than usual."""


class Interference(Protocol):
    """What goes wrong between one process and the API server."""

    def before(self, call: Call) -> Fate:
        """A call is about to be sent."""

    def after(self, call: Call) -> None:
        """Its answer has been handed over."""

    def event(self, event: Event) -> Sequence[tuple[float, Event]]:
        """An event is about to be delivered: what is delivered in its place, and by how many seconds later."""


@dataclass
class Calm:
    """Nothing goes wrong."""

    def before(self, call: Call) -> Fate:  # noqa: ARG002
        return Fate()

    def after(self, call: Call) -> None:
        """Nothing."""

    def event(self, event: Event) -> Sequence[tuple[float, Event]]:
        return [(0.0, event)]


def reset(call: Call) -> UnreachableError:
    """What the adapter makes of a connection that breaks."""
    return UnreachableError(f"{call}: no answer from the API server (connection reset)")


@dataclass
class Stream:
    """One watch of one process: what it was told, in order."""

    kind: Kind
    namespace: str | None
    matches: Callable[[Mapping[str, Any]], bool]
    queue: "asyncio.Queue[Change | ClusterError | None]"

    def selected(self, event: Event) -> Change | None:
        """The event as this watch shows it: an object that stops matching is gone for it."""
        if self.namespace not in (None, event.object["metadata"].get("namespace", "")):
            return None
        was = event.before is not None and self.matches(event.before)
        fits = self.matches(event.object) and event.type != "DELETED"
        if not was and not fits:
            return None
        return Change(deleted=not fits, object=event.object)


@dataclass
class Connection:
    """Cluster port of one process (and ``replace``, for its Lease)."""

    api: Api
    agenda: Agenda
    loop: ProcessLoop
    interference: Interference = field(default_factory=Calm)
    alive: bool = True
    calls: list[Call] = field(default_factory=list)
    """Writes as they were tried, Leases left out."""
    done: list[Call] = field(default_factory=list)
    """Those that the API server did."""
    logs: Callable[[str, str, bool], str] = lambda _namespace, _pod, _previous: ""
    allowed: Callable[[Call], None] = lambda _call: None
    """Raises UnfaithfulError for a call that who calls has no right to."""
    streams: list[Stream] = field(default_factory=list)
    frozen_at: int | None = None
    """The version at which an API server that lags answers listings and watches; writes and single reads do not lag."""

    def __post_init__(self) -> None:
        self.api.store.listeners.append(self._on_event)

    def close(self) -> None:
        """The process is gone: nothing of it reaches anybody, and nothing reaches it."""
        self.alive = False
        self.api.store.listeners.remove(self._on_event)
        self.streams.clear()

    def thaw(self) -> None:
        """The API server has caught up: watches end, and whoever begins anew sees everything."""
        self.frozen_at = None
        self.cut_watches(None)

    def cut_watches(self, error: ClusterError | None) -> None:
        """Every watch ends: by itself, or with an error."""
        for stream in [*self.streams]:
            stream.queue.put_nowait(error)

    # The port.

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return await self._call("get", kind, namespace, name, lambda: self.api.get(kind, namespace, name))

    async def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = ""
    ) -> AsyncIterator[Object]:
        found = await self._call("list", kind, namespace, "", lambda: self._listed(kind, namespace, selector, fields))
        for obj in found:
            yield obj

    def _listed(self, kind: Kind, namespace: str | None, selector: str, fields: str) -> Sequence[Object]:
        if self.frozen_at is not None:
            return self.api.listed_at(self.frozen_at, kind, namespace, selector, fields)
        return self.api.listed(kind, namespace, selector, fields)

    async def version(self, kind: Kind, namespace: str | None = None) -> str:
        def now() -> str:
            self.api.listed(kind, "")
            return str(self.frozen_at or self.api.store.version)

        return await self._call("list", kind, namespace, "", now)

    async def watch(self, kind: Kind, namespace: str | None, selector: str, since: str) -> AsyncIterator[Change]:
        stream = Stream(kind, namespace, matcher(selector), asyncio.Queue())
        await self._call("watch", kind, namespace, "", lambda: self._open(stream, int(since)))
        try:
            while True:
                change = await stream.queue.get()
                if change is None:
                    return
                if isinstance(change, ClusterError):
                    raise change
                yield change
        finally:
            if stream in self.streams:
                self.streams.remove(stream)

    def _open(self, stream: Stream, since: int) -> None:
        self.streams.append(stream)
        for event in self.api.changes(stream.kind, since):
            if self.frozen_at is None:
                self._deliver(stream, event)
        self.agenda.after(WATCH_SECONDS, lambda: stream.queue.put_nowait(None) if stream in self.streams else None)

    def _on_event(self, event: Event) -> None:
        for stream in self.streams if self.frozen_at is None else ():
            if stream.kind == event.kind:
                self._deliver(stream, event)

    def _deliver(self, stream: Stream, event: Event) -> None:
        for late_seconds, each in self.interference.event(event):
            change = stream.selected(each)
            if change is not None:
                self.agenda.after(WATCH_LATENCY_SECONDS + late_seconds, partial(self._hand_over, stream, change))

    def _hand_over(self, stream: Stream, change: Change) -> None:
        if self.alive and stream in self.streams:
            stream.queue.put_nowait(change)

    async def apply(
        self, kind: Kind, manifest: Object, manager: str, *, subresource: str = "", force: bool = True
    ) -> Object:
        meta = manifest["metadata"]
        return await self._call(
            "apply",
            kind,
            meta.get("namespace", ""),
            meta["name"],
            lambda: self.api.apply(kind, manifest, manager, subresource, force=force),
            subresource=subresource or ("" if manager != names.MANAGER_SCALE else "replicas"),
            body=manifest,
        )

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str, *, version: str = "") -> None:
        def drop() -> None:
            if self.api.store.get(kind, Address(namespace, name)):
                self.api.delete(kind, namespace, name, uid=uid, version=version)

        await self._call("delete", kind, namespace, name, drop)

    async def create(self, kind: Kind, manifest: Object) -> Object:
        meta = manifest["metadata"]
        made = lambda: self.api.create(kind, manifest, MANAGER)  # noqa: E731
        return await self._call("create", kind, meta["namespace"], meta["name"], made, body=manifest)

    async def replace(self, kind: Kind, manifest: Object) -> Object:
        meta = manifest["metadata"]
        made = lambda: self.api.replace(kind, manifest, MANAGER)  # noqa: E731
        return await self._call("replace", kind, meta["namespace"], meta["name"], made, body=manifest)

    async def log(
        self, namespace: str, pod: str, container: str, *, previous: bool, tail_lines: int, limit_bytes: int
    ) -> str:
        def read() -> str:
            lines = self.logs(namespace, pod, previous).splitlines()[-tail_lines:]
            return "\n".join(lines)[:limit_bytes]

        return await self._call("log", PODS, namespace, f"{pod}/{container}", read)

    async def served(self, kind: Kind) -> bool:
        return await self._call("get", kind, None, "", lambda: traits(kind) is not None)

    async def schema(self, kind: Kind) -> Object | None:
        return await self._call("get", kind, None, "", lambda: self.api.schema(kind))

    async def which_served(self, kinds: Collection[Kind]) -> frozenset[Kind]:  # noqa: ARG002 - none of them, here
        return await self._call("get", SERVICES, None, "", frozenset)

    # The way there and back.

    async def _call(
        self,
        verb: Verb,
        kind: Kind,
        namespace: str | None,
        name: str,
        work: Callable[[], Answer],
        *,
        subresource: str = "",
        body: Mapping[str, Any] | None = None,
    ) -> Answer:
        call = Call(verb, kind, namespace, name, subresource, body, self.agenda.now)
        answer: asyncio.Future[Answer] = self.loop.create_future()
        fate = self.interference.before(call) if self.alive else Fate(sent=False)
        if self._dead():
            return await answer  # for ever
        if call.is_write and kind != LEASES:
            self.calls.append(call)
        wait = LATENCY_SECONDS / 2 + fate.hold_seconds
        if fate.sent:
            self.agenda.after(wait, lambda: self._arrive(call, work, answer, fate.error))
        elif fate.error is not None:
            self.agenda.after(wait, lambda: self._reply(answer, None, fate.error))
        if fate.hold_seconds or not (fate.sent or fate.error):
            # Whatever else becomes of it, an answer comes in time.
            self.loop.call_later(TIMEOUT_SECONDS, self._time_out, answer, call)
        found = await answer
        self.interference.after(call)
        if self._dead():
            await self.loop.create_future()
        return found

    def _dead(self) -> bool:
        return not self.alive

    def _arrive(
        self, call: Call, work: Callable[[], Any], answer: asyncio.Future[Any], lost: ClusterError | None
    ) -> None:
        """At the API server, whatever has become of who asked."""
        found, error = None, lost
        try:
            self.allowed(call)
            found = work()
            if call.is_write and call.kind != LEASES:
                self.done.append(call)
        except ClusterError as refused:
            error = lost or refused
        except UnfaithfulError as unfaithful:
            self.loop.call_soon(self._fail, answer, unfaithful)
            return
        self.agenda.after(LATENCY_SECONDS / 2, lambda: self._reply(answer, found, error))

    def _reply(self, answer: asyncio.Future[Any], found: Any, error: Exception | None) -> None:
        if self.alive:
            self.loop.call_soon(self._fail if error else self._settle, answer, error or found)

    def _time_out(self, answer: asyncio.Future[Any], call: Call) -> None:
        self._fail(answer, UnreachableError(f"{call}: no answer from the API server (timeout)"))

    @staticmethod
    def _settle(answer: asyncio.Future[Any], found: Any) -> None:
        if not answer.done():
            answer.set_result(found)

    @staticmethod
    def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
        if not answer.done():
            answer.set_exception(error)
