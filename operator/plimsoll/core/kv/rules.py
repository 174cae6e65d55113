"""What changed in vLLM's cache planner from release to release, as one record a release.

Read from the source of the wheels of 0.10.2, 0.12.0, 0.16.0, 0.19.1, 0.22.1, 0.25.1, 0.28.0 and 0.32.0; a rule counts
from the first of them that has it.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from plimsoll.facts.engines import EngineVersion

RequestCheck = Literal["layers", "model", "stage"]
StateCaching = Literal["never", "mamba_only", "every_token", "aligned"]


@dataclass(frozen=True, slots=True)
class CacheRules:
    """Rules of one release.

    Attributes:
        nearly_equal: layer kinds whose numbers differ by less than this factor share the larger group size.
        state_caching: how recurrent state is kept for prefixes where caching is on: Mamba's at every block and no
            other (``mamba_only``), others at the last ends of blocks (``every_token``), all so (``aligned``).
        counts_in_flight: windows hold tokens of every step that is not settled, not of one step only.
        request_check: what one request must fit into the smallest rank as: its own layers one by one (``layers``),
            the groups of the whole model (``model``), the groups of the rank's pipeline stage (``stage``).
        reserves_null_block: the check that one request fits leaves the null block out.
        pads_pages: attention pages that do not divide the largest one are padded, and not refused.
        pads_states: a state page smaller than the largest page is padded.
        chunks_in_groups: chunked-local attention may use the hybrid manager without being told.
        state_unit_from_kernel: hybrid blocks grow in units of the kernel's block, and not of 16 tokens (64 under MLA).
        latent_state_unit: least such unit under MLA in tokens.
        mamba_checkpoints: Mamba2 and FlashKDA leave a checkpoint in mid-prefill.
        gdn_checkpoints: FlashInfer's gated delta nets do too, and blocks are aligned to where they may.
        window_blocks: windows pick a block of their own, as large as their kernel allows.
        float32_state_on_cpu: CPU kernels keep the recurrence in float32.
        flashmla_first: MLA on Hopper prefers FlashMLA, and FlashInfer's MLA takes blocks of 64 only.
    """

    nearly_equal: float
    state_caching: StateCaching
    counts_in_flight: bool
    request_check: RequestCheck
    reserves_null_block: bool
    pads_pages: bool
    pads_states: bool
    chunks_in_groups: bool
    state_unit_from_kernel: bool
    latent_state_unit: int
    mamba_checkpoints: bool
    gdn_checkpoints: bool
    window_blocks: bool
    float32_state_on_cpu: bool
    flashmla_first: bool


@cache
def rules_of(version: EngineVersion) -> CacheRules:
    """The rules of a release."""
    return CacheRules(
        nearly_equal=_nearly_equal(version),
        state_caching=_state_caching(version),
        counts_in_flight=version.at_least(28),
        request_check=_request_check(version),
        reserves_null_block=version.at_least(29),
        pads_pages=version.at_least(25),
        pads_states=version.at_least(28),
        # 0.33 turned the environment's default round again.
        chunks_in_groups=version.at_least(16) and not version.at_least(33),
        state_unit_from_kernel=version.at_least(20),
        latent_state_unit=128 if version.at_least(28) else 1,
        mamba_checkpoints=version.at_least(32),
        gdn_checkpoints=version.at_least(33),
        window_blocks=version.at_least(25),
        float32_state_on_cpu=version.at_least(32),
        flashmla_first=not version.at_least(19),
    )


def _nearly_equal(version: EngineVersion) -> float:
    if version.at_least(19):
        return 1.5
    return 1.25 if version.at_least(11) else 1.0


def _request_check(version: EngineVersion) -> RequestCheck:
    if version.at_least(19):
        return "stage"
    return "model" if version.at_least(15) else "layers"


def _state_caching(version: EngineVersion) -> StateCaching:
    if version.at_least(28):
        return "aligned"
    if version.at_least(15):
        return "every_token"
    return "mamba_only" if version.at_least(11) else "never"
