"""Looks at nodes, and at the pods on those that matter, when a roll-out is about to start or is stuck; never else.

Nothing is watched: in a large cluster others' pods change all the time, and only a decision needs to know (ADR 0010).
A node's pods are listed by ``spec.nodeName``, which the API server has an index for.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from plimsoll.adapters.ports import NODES, PODS, Cluster, ForbiddenError
from plimsoll.api import names
from plimsoll.core import capacity
from plimsoll.core.capacity import Node, Room
from plimsoll.core.placement import Needs, Requests
from plimsoll.core.plan.inventory import Inventory

log = logging.getLogger("plimsoll.survey")

FRESH_SECONDS: Final = 10.0
FORBIDDEN_SECONDS: Final = 30.0
AT_ONCE: Final = 16
"""Nodes asked about together; with room found on them the others are not asked."""


@dataclass
class Survey:
    """Counts free GPUs. ``inventory`` says what a product may grow to where nodes are added on demand."""

    cluster: Cluster
    monotonic: Callable[[], float]
    inventory: Callable[[], Inventory]
    _nodes: dict[str, tuple[float, tuple[Node, ...]]] = field(default_factory=dict)
    _taken: dict[str, tuple[float, Requests]] = field(default_factory=dict)
    _forbidden_until: float = float("-inf")

    async def room(self, needs: Needs, pods: int = 1) -> Room | None:
        """Room for so many more pods with these needs; None when the operator may not look."""
        if self.monotonic() < self._forbidden_until:
            return None
        try:
            return await self._look(needs, pods)
        except ForbiddenError as error:
            log.warning("no GPU counts as free: %s", error.message)
            self._forbidden_until = self.monotonic() + FORBIDDEN_SECONDS
            return None

    def on_demand(self, needs: Needs, room: Room | None) -> int | None:
        """GPUs of the product that may still be added; None where no limit is set or nothing can be counted."""
        limit = self.inventory().of(needs.selector.get(names.GPU_PRODUCT_LABEL, "")).grow_to
        return None if limit is None or room is None else max(0, limit - room.gpus_taken)

    async def _look(self, needs: Needs, pods: int) -> Room:
        nodes = await self._listed(needs)
        candidates = [node.name for node in nodes if capacity.may_take(needs, node)]
        taken: dict[str, Requests] = {}
        for start in range(0, len(candidates), AT_ONCE):
            several = candidates[start : start + AT_ONCE]
            taken |= dict(zip(several, await asyncio.gather(*map(self._taken_on, several)), strict=True))
            found = capacity.room(needs, _seen(nodes, candidates, taken), taken)
            if found.fits >= pods:
                return found
        return capacity.room(needs, nodes, taken)

    async def _listed(self, needs: Needs) -> tuple[Node, ...]:
        selector = ",".join(f"{key}={value}" for key, value in sorted(needs.selector.items()))
        at, nodes = self._nodes.get(selector, (float("-inf"), ()))
        if self.monotonic() - at > FRESH_SECONDS:
            nodes = tuple([capacity.read_node(obj) async for obj in self.cluster.list(NODES, None, selector)])
            self._nodes[selector] = (self.monotonic(), nodes)
        return nodes

    async def _taken_on(self, node: str) -> Requests:
        at, taken = self._taken.get(node, (float("-inf"), {}))
        if self.monotonic() - at > FRESH_SECONDS:
            pods = [pod async for pod in self.cluster.list(PODS, None, "", f"spec.nodeName={node}")]
            taken = capacity.taken_of(pods)
            self._taken[node] = (self.monotonic(), taken)
        return taken


def _seen(nodes: Sequence[Node], candidates: Sequence[str], taken: Mapping[str, Requests]) -> list[Node]:
    """Nodes whose pods were listed, and those whose pods do not matter."""
    unseen = set(candidates) - taken.keys()
    return [node for node in nodes if node.name not in unseen]
