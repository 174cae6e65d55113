"""Watches our pods without Kopf: a fleet's pods are many and their status is chatty.

Measured: one event costs Kopf about 4 ms of CPU, and this watch about 1 ms (docs/adr/0010).
"""

from plimsoll.adapters.ports import PODS, Cluster, GoneError
from plimsoll.control.cache import Cache, Key
from plimsoll.control.remember import remember
from plimsoll.control.sweep import OWNED, Sweep
from plimsoll.control.workqueue import WorkQueue


async def watch_pods(
    cluster: Cluster, sweep: Sweep, cache: Cache, queue: WorkQueue[Key], namespace: str | None
) -> None:
    """List and watch the pods of one namespace, or of all, for ever. Raises ClusterError when the API is away."""
    while True:
        since = await cluster.version(PODS, namespace)
        await sweep.list_kind(PODS, namespace)
        try:
            while True:
                async for change in cluster.watch(PODS, namespace, OWNED, since):
                    since = change.object["metadata"]["resourceVersion"]
                    remember(PODS, change, cache, queue)
        except GoneError:
            continue  # too old to go on from: list again
