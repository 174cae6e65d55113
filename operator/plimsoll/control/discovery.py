"""Whether the API server serves our kind: asked before watching, and again and again, since CRDs come and go."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from plimsoll.adapters.ports import SERVICES, Cluster, ClusterError, ForbiddenError
from plimsoll.api.schema import resource_schema
from plimsoll.core.contract import complaint, missing_fields

log = logging.getLogger("plimsoll.discovery")

ASK_SECONDS: Final = 2.0
WATCH_SECONDS: Final = 15.0


async def until_served(cluster: Cluster, tell: Callable[[str], None] = lambda _: None) -> None:
    """Wait until VLLMServices are served with every field we know.

    Logs once what is missing and what to do; ``tell`` hears it too, and hears nothing (empty) once it is over.
    """
    told = ""
    while wrong := await _not_served(cluster):
        if wrong != told:
            log.warning("waiting: %s", wrong)
            told = wrong
        tell(wrong)
        await asyncio.sleep(ASK_SECONDS)
    tell("")


async def _not_served(cluster: Cluster) -> str:
    """Why VLLMServices cannot be worked with as this operator knows them, or empty."""
    try:
        if not await cluster.served(SERVICES):
            return "the VLLMService CRD is not installed: kubectl apply --server-side -f crds/"
    except ClusterError as error:
        return error.message
    try:
        schema = await cluster.schema(SERVICES)
    except ForbiddenError as error:
        log.warning("cannot compare the CRD with this operator: %s", error.message)
        return ""
    except ClusterError as error:
        return error.message
    if schema is None:
        return "the API server does not publish the schema of VLLMServices yet"
    return complaint(missing_fields(schema, _known()))


@cache
def _known() -> Mapping[str, Any]:
    return resource_schema()


async def until_gone(cluster: Cluster) -> None:
    """Return when the API server answers and no longer serves VLLMServices; an outage is not an answer."""
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            if not await cluster.served(SERVICES):
                log.warning("the VLLMService CRD is gone")
                return
        except ClusterError:
            continue
