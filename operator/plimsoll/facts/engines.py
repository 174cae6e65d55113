"""vLLM releases: which we have facts about, and the defaults that moved between them.

Each rule names the first release it was seen in among those recorded (0.10.2, 0.11.0, 0.12.0, 0.14.1, 0.16.0, 0.19.1,
0.22.1, 0.25.1, 0.28.0, 0.32.0); the change itself may have come in any release after the one before.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, Self

from plimsoll.facts.gpus import GIB, GPU

NEWEST: Final = "0.32.0"
RECORDED: Final = ("0.10.2", "0.11.0", "0.12.0", "0.14.1", "0.16.0", "0.19.1", "0.22.1", "0.25.1", "0.28.0", "0.32.0")
OLDEST_RELEASE: Final = (0, 10)
NEWEST_RELEASE: Final = (0, 33)

_VERSION: Final = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?:[.+\-a-z].*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class EngineVersion:
    """A vLLM release number; order is release order, build and pre-release marks are ignored."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``0.32.0``, ``v0.32.0`` or ``0.32.0+cpu``.

        Raises:
            ValueError: not a release number, or a release there are no rules for (before 0.10, after 0.33).
        """
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"engine version {text!r} is not a release number such as {NEWEST}")
        version = cls(int(match[1]), int(match[2]), int(match[3] or 0))
        if not OLDEST_RELEASE <= (version.major, version.minor) <= NEWEST_RELEASE:
            raise ValueError(f"engine version {text!r}: rules are known for 0.10 to 0.33, the newest is {NEWEST}")
        return version

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    def at_least(self, minor: int) -> bool:
        """Whether this is release 0.``minor`` or later."""
        return (self.major, self.minor) >= (0, minor)


def default_utilisation(version: EngineVersion) -> float:
    """Share of device memory vLLM takes when nobody says otherwise: 0.9, from 0.20 on 0.92.

    Source: ``gpu_memory_utilization`` of the parsers of 0.19.1 and 0.22.1, and of 0.20.2's source.
    """
    return 0.92 if version.at_least(20) else 0.9


@dataclass(frozen=True, slots=True)
class BatchDefaults:
    """What a server batches when not told: tokens of one step, sequences of one step."""

    max_num_batched_tokens: int
    max_num_seqs: int


def batch_defaults(
    version: EngineVersion, device: GPU | Literal["cpu"], *, world_size: int = 1, offline: bool = False
) -> BatchDefaults:
    """Batch limits vLLM picks for a device, before it clips them to the model.

    The name decides for the A100 (it stays with the small figures), torch's memory total for every other part.
    ``offline`` is the ``LLM`` class instead of a server. Source: ``engine/arg_utils.py get_batch_defaults``; the
    largest class appeared in 0.28.
    """
    if device == "cpu":
        scale = world_size * (2 if offline else 1)
        return BatchDefaults(2048 * scale, 128 * scale)
    total_bytes = device.torch_total_bytes
    if total_bytes >= 160 * GIB and version.at_least(28):
        return BatchDefaults(16384, 1024)
    if total_bytes >= 70 * GIB and "a100" not in device.name.lower():
        return BatchDefaults(16384 if offline else 8192, 1024)
    return BatchDefaults(8192 if offline else 2048, 256)


def prefix_caching_of_state_models(version: EngineVersion) -> bool:
    """Whether models with recurrent state cache prefixes by default: from 0.28 on (layouts of 0.25.1 and 0.28.0)."""
    return version.at_least(28)


def prints_worst_case_tokens(version: EngineVersion) -> bool:
    """Whether "KV cache size" is concurrency × context (from 0.20) and not blocks × block size / groups (to 0.19)."""
    return version.at_least(20)
