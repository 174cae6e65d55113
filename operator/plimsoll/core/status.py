"""The status document, and whether writing it is worth a write.

Flips are written at once. Figures alone (ready counts, messages) are written at most a few times in a row and then
once a minute an object: a flapping pod must not become a stream of etcd writes (decision 11).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from plimsoll.api import names

Change = Literal["none", "figures", "flip"]

FIGURES_BURST: Final = 4
FIGURES_EVERY_SECONDS: Final = 60.0
ALL_FIGURES_BURST: Final = 50
ALL_FIGURES_EVERY_SECONDS: Final = 0.2
"""Over all objects: five a second, however many services there are."""


@dataclass
class FigureBudget:
    """How many figure-only writes may still be made; a token bucket on a monotonic clock. By default of one object."""

    burst: float = FIGURES_BURST
    every_seconds: float = FIGURES_EVERY_SECONDS
    tokens: float = field(init=False)
    at_seconds: float | None = None

    def __post_init__(self) -> None:
        self.tokens = self.burst

    def wait_seconds(self, now_seconds: float) -> float:
        """0 when a write may be made now, else the seconds until then."""
        if self.at_seconds is not None:
            gained = (now_seconds - self.at_seconds) / self.every_seconds
            self.tokens = min(self.burst, self.tokens + gained)
        self.at_seconds = now_seconds
        return 0.0 if self.tokens >= 1 else (1 - self.tokens) * self.every_seconds

    def spend(self) -> None:
        """A figure-only write was made."""
        self.tokens -= 1


def change(before: Mapping[str, Any], after: Mapping[str, Any]) -> Change:
    """What a write of ``after`` over ``before`` would say."""
    if _essence(before) != _essence(after):
        return "flip"
    return "none" if _matches(before, after) else "figures"


def without_empty_maps(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The value with no empty map at any depth.

    Where one takes the place of a map whose last field goes, a server-side apply leaves a null, which the schema
    refuses: the status would never be written again. Found by the rig (a clock set back over midnight).
    """
    if value is None or isinstance(value, str | int | float):  # the most by far, and the quickest to tell
        return value
    if isinstance(value, Mapping):
        inner = {key: without_empty_maps(each) for key, each in value.items()}
        return {key: each for key, each in inner.items() if each != {}}
    return [without_empty_maps(each) for each in value] if isinstance(value, list | tuple) else value


def manifest(service: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """The server-side apply body of the status. ``service``: the metadata of the VLLMService."""
    meta = {key: service[key] for key in ("namespace", "name")}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "status": status}


def _essence(status: Mapping[str, Any]) -> object:
    conditions = [(c.get("type"), c.get("status"), c.get("reason")) for c in status.get("conditions") or ()]
    kept = {k: status.get(k) for k in ("observedGeneration", "servedBy", "selector", "replicas", "plan", "decisions")}
    kept["tuning"] = status.get("tuning") or {}
    advice = status.get("recommendation") or {}
    said = (status.get("observed") or {}).get("bottleneck"), advice.get("flag"), advice.get("to")
    return sorted(map(str, conditions)), kept, said


def _matches(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return all(before.get(key) == value for key, value in after.items())
