"""What the planner says about a server: sizes, the pool, how long it loads. Computed when a rule asks, once a "
"server.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from plimsoll.core.lifecycle.startup import Load, startup
from plimsoll.core.rows import ModelSource, answer
from plimsoll.core.workloads.launch import is_unresolved
from plimsoll.core.workloads.server import Server, keeps, lies_in
from plimsoll.facts import catalogue, gpus
from plimsoll.facts.engines import NEWEST, OLDEST_RELEASE, EngineVersion
from plimsoll.facts.model_names import BILLION, billions_of, weight_bytes_of

_PLENTY: Final = 1 << 45
_GUESSED: Final = "oom_risk"
"""The one refusal that is not the engine's own check: it may start, and end later."""
_OF_ANY_RELEASE: Final = frozenset({"weights_do_not_fit", "no_memory_for_kv", "heads_not_divisible"})
_OLDEST: Final = EngineVersion(*OLDEST_RELEASE)
_HALF_BYTES: Final = 2
SMALL_BILLIONS: Final = 10
LARGE_BILLIONS: Final = 25
_LOAD_SECONDS: Final = ((SMALL_BILLIONS, 300), (LARGE_BILLIONS, 600))
_LARGEST_LOAD_SECONDS: Final = 1200
_WHOLE_NODE: Final = 8
_LAYERS: Final = ((10, 32), (40, 60))
_MOST_LAYERS: Final = 80
_CAPTURED_SIZES: Final = 67
_ROOM: Final = frozenset(
    {"port", "host", "served_model_name", "api_key", "config", "model", "revision", "uvicorn_log_level"}
)
_SIZES: Final = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_model_len")
HUB_CACHES: Final = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "TRANSFORMERS_CACHE", "XDG_CACHE_HOME")
DEFAULT_CACHE: Final = "/root/.cache/huggingface"


class Planner:
    """The planner with a source of models; answers are kept, since fleets repeat themselves."""

    def __init__(self, models: ModelSource) -> None:
        self._models = models
        self._answered = lru_cache(maxsize=4096)(self._answer)

    def __call__(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """What ``plimsoll predict`` says of a row."""
        return self._answered(json.dumps(row, sort_keys=True))

    def _answer(self, row: str) -> Mapping[str, Any]:
        return answer(json.loads(row), self._models)


@dataclass(frozen=True)
class Evidence:
    """What is known of one server beyond its manifest."""

    server: Server
    planner: Planner

    @property
    def version(self) -> EngineVersion | None:
        """The release that rules are known for; None for others, and where no release is known."""
        written = self.server.release_text
        if written is None:
            return None
        try:
            return EngineVersion.parse(written)
        except ValueError:
            return None

    @cached_property
    def model(self) -> str | None:
        """The name whose configuration is looked for: a folder is taken for the model that it is called."""
        model = self.server.model if self.server.model_known else None
        fetched = self.server.candidate.model
        if model is not None and model.startswith("/") and fetched and "/" in fetched:
            return fetched  # the folder is where an operator puts the model it fetches
        if model is None or ("/" in model and not model.startswith("/")):
            return model
        return catalogue.named(model.rstrip("/").rsplit("/", 1)[-1]) or model

    @property
    def catalogued(self) -> bool:
        """Whether the model's configuration is known."""
        return self._weights.get("weights_bytes") is not None

    @cached_property
    def _weights(self) -> Mapping[str, Any]:
        """The weights alone, as one GPU would hold them."""
        server = self.server
        if not server.model_known:
            return {}
        flags = {key: text for key in ("dtype", "quantization") if (text := server.arguments.text(key))}
        row = {"model": self.model, "gpu": "H100", "available_kv_bytes": _PLENTY, "flags": flags}
        found = self.planner(row)
        return found if found.get("weights_bytes") else self.planner({**row, "flags": {}})

    @cached_property
    def weight_bytes(self) -> int | None:
        """Bytes of all weights: of the configuration, else by the model's name."""
        known = self._weights.get("weights_bytes")
        if known:
            return int(known)
        model = self.server.model if self.server.model_known else None
        return weight_bytes_of(model, self.server.arguments.text("quantization")) if model else None

    @cached_property
    def billions(self) -> float | None:
        """Billions of parameters: by the name, else by the bytes of an unquantised model."""
        found = billions_of(self.server.model) if self.server.model_known and self.server.model else None
        served = self.server.arguments.text("served_model_name")
        if found is None and served and not is_unresolved(served):
            found = billions_of(served)
        known = self._weights.get("weights_bytes")
        return found if found is not None else known / _HALF_BYTES / BILLION if known else None

    @property
    def large(self) -> bool:
        """Whether it is a model of 25 billion parameters or more."""
        return self.billions is not None and self.billions >= LARGE_BILLIONS

    @cached_property
    def load_seconds(self) -> int:
        """From the container's start to its first request: what to allow for, by size and by the planner's estimate."""
        return max(self.class_seconds, self.estimated_seconds or 0)

    @property
    def class_seconds(self) -> int:
        """300 s below 10 billion parameters or unknown, 600 s below 25, else 1,200 s (``manifests.md``, Limits)."""
        if self.billions is None:
            return _LARGEST_LOAD_SECONDS if (self.server.gpus or 0) >= _WHOLE_NODE else _LOAD_SECONDS[0][1]
        return next((seconds for size, seconds in _LOAD_SECONDS if self.billions < size), _LARGEST_LOAD_SECONDS)

    @cached_property
    def estimated_seconds(self) -> int | None:
        """The planner's estimate of the same, on the slow side; None where the weights' size is unknown."""
        if self.weight_bytes is None:
            return None
        billions = self.billions or 0
        fetched = self.weight_bytes if self.server.fetches and not self.keeps_weights else 0
        load = Load(
            source="hostPath",
            read_bytes=self.weight_bytes,
            ranks=self.server.ranks,
            layers=next((layers for size, layers in _LAYERS if billions < size), _MOST_LAYERS),
            captured_sizes=0 if self.server.arguments.on("enforce_eager") else _CAPTURED_SIZES,
            eager=self.server.arguments.on("enforce_eager"),
            fetched_bytes=fetched,
        )
        return startup(load).seconds

    @property
    def cache_folders(self) -> list[str]:
        """Where fetched weights are kept in the container."""
        environment = self.server.environment
        named = [environment[name] for name in HUB_CACHES if environment.get(name)]
        own = self.server.arguments.text("download_dir")
        return [each.rstrip("/") for each in ((own,) if own else tuple(named) or (DEFAULT_CACHE,))]

    @cached_property
    def keeps_weights(self) -> bool:
        """Whether fetched weights outlive the pod: on a volume that is mounted where they go."""
        mounts = self.server.mounts
        for path, volume in mounts.items():
            if not keeps(volume):
                continue
            if "huggingface" in path or ".cache" in path:
                return True
            if any(lies_in(folder, path) for folder in self.cache_folders):
                return True
        return False

    @cached_property
    def cache_volume(self) -> Mapping[str, Any] | None:
        """The volume mounted where fetched weights go, of whatever kind."""
        below = [
            (len(path), volume)
            for path, volume in self.server.mounts.items()
            if any(lies_in(folder, path) for folder in self.cache_folders)
        ]
        return max(below, key=lambda each: each[0])[1] if below else None

    @cached_property
    def gpu(self) -> gpus.GPU | None:
        """The GPU, where its product is known."""
        return gpus.find(self.server.product) if self.server.product else None

    @cached_property
    def row(self) -> Mapping[str, Any] | None:
        """The start as a row of ``plimsoll predict``; None where model, GPU or argv are not known."""
        server = self.server
        if self.gpu is None or not server.argv_known or not server.model_known or server.other_device or server.on_cpu:
            return None
        if self._sizes_open:
            return None
        version = server.release_text
        return {
            "model": self.model,
            "gpu": server.product,
            "flags": self._flags(),
            **({"engine_version": version} if version else {}),
        }

    @property
    def _sizes_open(self) -> bool:
        """Whether something that the files do not say stands for a size."""
        return any(is_unresolved(self.server.arguments.text(dest) or "") for dest in _SIZES)

    @property
    def _too_old(self) -> bool:
        """Whether the release is older than any that rules are known for."""
        return self.server.release is not None and self.server.release[:2] < OLDEST_RELEASE

    def _flags(self) -> dict[str, Any]:
        version = self.version or (_OLDEST if self._too_old else EngineVersion.parse(NEWEST))
        found = {}
        for dest, use in self.server.arguments.by_dest.items():
            if use.flag is None or dest in _ROOM or not use.flag.known_to(version):
                continue
            if isinstance(use.value, str) and is_unresolved(use.value):
                continue
            found[use.written.partition(".")[0] if use.abbreviates is None else use.abbreviates] = use.value
        return found

    @cached_property
    def prediction(self) -> Mapping[str, Any] | None:
        """What the planner says of the start; None where it cannot be asked."""
        if self.row is None:
            return None
        found = self.planner(self.row)
        return None if found["outcome"] == "unknown" else found

    @cached_property
    def surely_refused(self) -> bool:
        """Whether the engine is refused at the high end of what is left too, by the rules of its own release."""
        found, row = self.prediction, self.row
        if found is None or row is None or found["outcome"] != "refused" or found["reason"] == _GUESSED:
            return False
        if self._too_old and found["reason"] not in _OF_ANY_RELEASE:
            return False
        left = found.get("available_kv_bytes")
        if left is None:
            return True
        again = self.planner({**row, "available_kv_bytes": max(0, int(left["high"]))})
        return bool(again["outcome"] == "refused")

    def unknown(self) -> list[str]:
        """What could not be judged, and why."""
        server, found = self.server, []
        if not server.argv_known:
            found.append(f"the command line: {server.launch.why_unknown}")
        elif server.launch.why_unknown:
            found.append(f"a part of the command line: {server.launch.why_unknown}")
        if server.launch.unresolved:
            found.append(f"what {', '.join(server.launch.unresolved[:5])} stand for")
        if server.other_device or server.on_cpu:
            found.append(f"memory: the arithmetic is for NVIDIA GPUs, not for {server.other_device or 'CPUs'}")
        elif self.prediction is None:
            found.append(f"whether it fits: {self._why_unpredicted()}")
        elif self._too_old:
            known = "rules are known from 0.10 on, and those of 0.10 were taken"
            found.append(f"memory of vLLM {server.release_text}: {known}")
        if self.model != server.model and self.catalogued:
            found.append(f"whether {server.model} is {self.model}: taken for it by its name")
        return found

    def _why_unpredicted(self) -> str:
        server = self.server
        if not server.argv_known or not server.model_known:
            return "the model is not known"
        if not self.catalogued:
            return f"no configuration of {server.model} at hand; --model-config or --hub"
        if self._sizes_open:
            return "sizes on the command line are not in the files"
        if self.gpu is None:
            named = f"the GPU {server.product} is not known" if server.product else "no GPU product is named"
            return f"{named}; --gpu"
        return str((self.planner(self.row) if self.row else {}).get("message") or "the planner does not know it")


def shown_gib(size: float) -> str:
    """Bytes as GiB for a sentence."""
    gib = size / (1 << 30)
    return f"{gib:.0f} GiB" if gib >= 10 else f"{gib:.1f} GiB"  # noqa: PLR2004
