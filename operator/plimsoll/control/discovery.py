"""Whether the API server serves our kind: asked before watching, and again and again, since CRDs come and go."""

import asyncio
import logging
from typing import Final

from plimsoll.adapters.ports import SERVICES, Cluster, ClusterError

log = logging.getLogger("plimsoll.discovery")

ASK_SECONDS: Final = 2.0
WATCH_SECONDS: Final = 15.0


async def until_served(cluster: Cluster) -> None:
    """Wait until VLLMServices are served; says once what is missing and what to do."""
    told = ""
    while True:
        try:
            if await cluster.served(SERVICES):
                return
            wrong = "the VLLMService CRD is not installed: kubectl apply --server-side -f crds/"
        except ClusterError as error:
            wrong = error.message
        if wrong != told:
            log.warning("waiting: %s", wrong)
            told = wrong
        await asyncio.sleep(ASK_SECONDS)


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
