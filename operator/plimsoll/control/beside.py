"""Objects of optional kinds beside a fleet: written like every child, in the way of nothing."""

from collections.abc import Callable, Mapping
from typing import Final

from plimsoll.adapters.ports import OPTIONAL
from plimsoll.control.children import Applied, Children, Live
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

    async def bring(self, request: Request, live: Live, applied: Applied) -> tuple[Problem, ...]:
        """Make what is wanted, delete what is not wanted any more; what is in the way, each kind for itself."""
        kinds = self._kinds(request.namespace)
        wanted = integrations(request, rollout.owner(request), kinds, self._monitor_labels)
        made = [await self._children.beside(request, manifest, live, applied) for manifest in wanted.manifests]
        gone = [await self._children.drop(request, _KINDS[kind], request.name, live) for kind in wanted.unwanted]
        return (*wanted.problems, *(problem for problem in (*made, *gone) if problem))
