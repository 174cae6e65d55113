"""Objects of optional kinds beside a fleet: written like every child, in the way of nothing."""

from collections.abc import Callable, Mapping
from typing import Final

from plimsoll.adapters.ports import OPTIONAL
from plimsoll.control.children import Children, Live
from plimsoll.core import rollout
from plimsoll.core.conditions import Problem
from plimsoll.core.integrations import integrations
from plimsoll.core.kinds import Kinds
from plimsoll.core.request import Request

_KINDS: Final = {kind.kind: kind for kind in OPTIONAL}


class Beside:
    """PodMonitor and InferencePool of one service at a time. ``monitor_labels``: the owner's, on every PodMonitor."""

    def __init__(self, children: Children, kinds: Callable[[str], Kinds], monitor_labels: Mapping[str, str]) -> None:
        self._children = children
        self._kinds = kinds
        self._monitor_labels = monitor_labels

    async def bring(self, request: Request, live: Live) -> tuple[Problem, ...]:
        """Make what is wanted, delete what is not wanted any more; what is in the way of the first."""
        kinds = self._kinds(request.namespace)
        wanted = integrations(request, rollout.owner(request), kinds, self._monitor_labels)
        await self._children.drop(request, [(_KINDS[name], request.name) for name in wanted.unwanted], live)
        return (*wanted.problems, *await self._children.beside(request, wanted.manifests, live))
