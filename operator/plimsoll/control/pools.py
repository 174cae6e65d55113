"""What the pods of all services report of their KV pools, for whoever plans the same engine.

Nothing is kept beside the services' own statuses: after a restart each is read back with the first look at its service.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from plimsoll.control.cache import Key
from plimsoll.core import pools
from plimsoll.core.manifests.image import repository
from plimsoll.core.pools import Pool

NOTHING: Final[Mapping[str, int]] = {}


class Pools:
    """Pools by model. Only engines of ``trusted`` image repositories teach: another build is another engine."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = frozenset(map(repository, trusted))
        self._reported: dict[str, dict[Key, Pool]] = defaultdict(dict)
        self._model: dict[Key, str] = {}

    def note(self, key: Key, model: str, image: str, pool: Pool | None) -> None:
        """What a service's fleet reports now; None takes back what it reported before."""
        self.forget(key)
        if pool is not None and repository(image) in self._trusted:
            self._model[key] = model
            self._reported[model][key] = pool

    def forget(self, key: Key) -> None:
        """The service is gone: its pods teach no longer."""
        model = self._model.pop(key, None)
        if model is not None:
            self._reported[model].pop(key, None)

    def of(self, model: str) -> Mapping[str, int]:
        """Blocks by key, of engines with this model, as far as their pods agree."""
        found = self._reported.get(model)
        return pools.learned(found.values()) if found else NOTHING
