"""A status that finds nobody to be written to: the service is gone, unless its kind is."""

import asyncio
from typing import Any, cast

import pytest

from plimsoll.adapters.ports import SERVICES, Clock, Cluster, ConflictError, Kind, NotFoundError
from plimsoll.api import names
from plimsoll.control.cache import Cache
from plimsoll.control.events import EventWriter
from plimsoll.control.report import Reporter

SERVICE: dict[str, Any] = {
    "metadata": {"namespace": "ns", "name": "svc", "resourceVersion": "5", "labels": {}},
    "spec": {},
}


class Gone:
    """A cluster in which there is no such object."""

    def __init__(self, *, kind_served: bool) -> None:
        self._kind_served = kind_served

    async def apply(self, *_: object, **__: object) -> None:
        raise NotFoundError('vllmservices "svc" not found', status=404)

    async def served(self, _: Kind) -> bool:
        return self._kind_served


def _release(cache: Cache, *, kind_served: bool) -> None:
    cluster = cast("Cluster", Gone(kind_served=kind_served))
    reporter = Reporter(cluster, cache, cast("Clock", None), cast("EventWriter", None), names.KIND)
    asyncio.run(reporter.release(SERVICE))


def test_a_service_that_is_gone_is_forgotten_and_looked_at_again() -> None:
    cache = Cache()
    cache.put(SERVICES, SERVICE)
    with pytest.raises(ConflictError):
        _release(cache, kind_served=True)
    assert not [*cache.services()]


def test_one_that_was_made_anew_meanwhile_stays() -> None:
    cache = Cache()
    cache.put(SERVICES, {**SERVICE, "metadata": {**SERVICE["metadata"], "resourceVersion": "9"}})
    with pytest.raises(ConflictError):
        _release(cache, kind_served=True)
    assert [*cache.services()]


def test_while_the_kind_is_not_served_nothing_is_forgotten() -> None:
    cache = Cache()
    cache.put(SERVICES, SERVICE)
    _release(cache, kind_served=False)
    assert [*cache.services()]
