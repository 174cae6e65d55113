"""Only the leader writes: every write asks first, and ends before the Lease can be somebody else's.

Kubernetes has no fencing tokens; this is the nearest thing. What still gets through (a process stopped between the
question and the send) is caught by the version that scale and template writes carry.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from plimsoll.adapters.ports import Change, Cluster, Kind, Object, UnreachableError

Answer = TypeVar("Answer")


class NotLeadingError(UnreachableError):
    """The write was not sent: another operator may hold the Lease by now."""


@dataclass(frozen=True)
class FencedCluster:
    """A Cluster whose writes need the lead. ``write_seconds`` says how long a write may take now; 0: not at all."""

    cluster: Cluster
    write_seconds: Callable[[], float]

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """One object; NotFoundError when there is none."""
        return await self.cluster.get(kind, namespace, name)

    def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = ""
    ) -> AsyncIterator[Object]:
        """All objects of a kind, page by page."""
        return self.cluster.list(kind, namespace, selector, fields)

    async def version(self, kind: Kind, namespace: str | None = None) -> str:
        """A version to watch from."""
        return await self.cluster.version(kind, namespace)

    def watch(self, kind: Kind, namespace: str | None, selector: str, since: str) -> AsyncIterator[Change]:
        """Changes after a listing's version."""
        return self.cluster.watch(kind, namespace, selector, since)

    async def log(
        self, namespace: str, pod: str, container: str, *, previous: bool, tail_lines: int, limit_bytes: int
    ) -> str:
        """The end of a container's log."""
        return await self.cluster.log(
            namespace, pod, container, previous=previous, tail_lines=tail_lines, limit_bytes=limit_bytes
        )

    async def served(self, kind: Kind) -> bool:
        """Whether the API server serves this kind now."""
        return await self.cluster.served(kind)

    async def schema(self, kind: Kind) -> Object | None:
        """The OpenAPI schema under which this kind is served."""
        return await self.cluster.schema(kind)

    async def which_served(self, kinds: Collection[Kind]) -> frozenset[Kind]:
        """Those of the kinds that the API server serves now."""
        return await self.cluster.which_served(kinds)

    async def apply(
        self, kind: Kind, manifest: Object, manager: str, *, subresource: str = "", force: bool = True
    ) -> Object:
        """Server-side apply, while leading."""
        return await self._fenced(
            lambda: self.cluster.apply(kind, manifest, manager, subresource=subresource, force=force)
        )

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str, *, version: str = "") -> None:
        """Delete this very object, while leading."""
        await self._fenced(lambda: self.cluster.delete(kind, namespace, name, uid, version=version))

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """Create an object that nobody updates afterwards, while leading."""
        return await self._fenced(lambda: self.cluster.create(kind, manifest))

    async def _fenced(self, write: Callable[[], Awaitable[Answer]]) -> Answer:
        left = self.write_seconds()
        if left <= 0:
            raise NotLeadingError("not written: this operator does not lead (any more)")
        try:
            async with asyncio.timeout(left):
                return await write()
        except TimeoutError as error:
            raise NotLeadingError(f"no answer within {left:.0f} s, when the lead may end") from error
