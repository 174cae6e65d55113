"""What the pods of all services teach about their engines, for whoever plans the same engine.

Nothing is kept beside the services' own statuses: after a restart they are read back before the first plan is made.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from plimsoll.control.cache import Key
from plimsoll.core import pools, speed
from plimsoll.core.manifests.image import repository
from plimsoll.core.pools import Pool
from plimsoll.core.speed import Speed

Lesson = TypeVar("Lesson")
Figure = TypeVar("Figure")


class Lessons(Generic[Lesson, Figure]):
    """Lessons by model. Only engines of ``trusted`` image repositories teach: another build is another engine.

    ``agreed``: figures by key, of lessons of one model, as far as they agree.
    """

    def __init__(self, trusted: Sequence[str], agreed: Callable[[Iterable[Lesson]], Mapping[str, Figure]]) -> None:
        self._trusted = frozenset(map(repository, trusted))
        self._agreed = agreed
        self._taught: dict[str, dict[Key, Lesson]] = defaultdict(dict)
        self._model: dict[Key, str] = {}

    def note(self, key: Key, model: str, image: str, lesson: Lesson | None) -> None:
        """What a service's fleet teaches now; None takes back what it taught before."""
        self.forget(key)
        if lesson is not None and repository(image) in self._trusted:
            self._model[key] = model
            self._taught[model][key] = lesson

    def forget(self, key: Key) -> None:
        """The service is gone: its pods teach no longer."""
        model = self._model.pop(key, None)
        if model is not None:
            self._taught[model].pop(key, None)

    def of(self, model: str) -> Mapping[str, Figure]:
        """Figures by key, of engines with this model, as far as their pods agree."""
        found = self._taught.get(model)
        return self._agreed(found.values()) if found else {}


class Pools(Lessons[Pool, int]):
    """Blocks of KV cache."""

    def __init__(self, trusted: Sequence[str]) -> None:
        super().__init__(trusted, pools.learned)


class Speeds(Lessons[Speed, float]):
    """Step times over those predicted."""

    def __init__(self, trusted: Sequence[str]) -> None:
        super().__init__(trusted, speed.learned)
