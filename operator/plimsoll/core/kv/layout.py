"""The KV layout of one engine: block size, groups, bytes a block, and how requests turn into blocks."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from plimsoll.core.kv.choices import Choices, choose, draft_layers
from plimsoll.core.kv.grouping import Group, Member, bytes_per_block, group_layers
from plimsoll.core.kv.kernels import Kernel
from plimsoll.core.kv.layers import specs_by_layer
from plimsoll.core.kv.options import EngineOptions
from plimsoll.core.kv.refusals import BAD_FLAG, Refusal
from plimsoll.core.kv.resolve import Resolved
from plimsoll.facts.models import CompressedAttention, LatentAttention, ModelFacts, RingBuffer


@dataclass(frozen=True)
class KVLayout:
    """What the pool of one engine looks like on its ranks.

    Attributes:
        options: the flags it is for.
        resolved: the same after defaults.
        block_tokens: vLLM's ``block_size``.
        kv_dtype: the cache dtype in effect.
        kernels: names of the attention backends.
        groups: layers that share block tables.
        block_outermost: whether a block's layers lie together in memory.
        stage_layers: decoder layers of each pipeline stage.
        stage_bytes: bytes a block costs on a rank of each stage; the fullest decides.
        unsplit_by: the kernel that cannot work with the block size somebody asked for.
    """

    options: EngineOptions
    resolved: Resolved
    block_tokens: int
    kv_dtype: str
    kernels: tuple[str, ...]
    groups: tuple[Group, ...]
    block_outermost: bool
    stage_layers: tuple[range, ...]
    stage_bytes: tuple[int, ...]
    unsplit_by: Kernel | None = None

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block on the fullest rank; 0 when nothing is cached."""
        return max(self.stage_bytes, default=0)

    @cached_property
    def state_groups(self) -> int:
        """Groups that hold recurrent state."""
        return sum(group.members[0].spec.kind == "state" for group in self.groups)

    def blocks_for_request(self, tokens: int) -> int:
        """Blocks vLLM reserves for one request of ``tokens`` when it checks that it fits."""
        return sum(self._blocks_by_group(tokens))

    def request_bytes(self, tokens: int) -> tuple[int, ...]:
        """Bytes of one request of ``tokens`` in each of the checks that it fits (``CacheRules.request_check``)."""
        rule = self.options.rules.request_check
        if rule == "layers":
            return tuple(self._layer_bytes(stage, tokens) for stage in self.stage_layers)
        blocks = self.blocks_for_request(tokens)
        if rule == "model":
            return (blocks * bytes_per_block(self.groups, block_outermost=self.block_outermost),)
        return tuple(blocks * stage_bytes for stage_bytes in self.stage_bytes)

    def _layer_bytes(self, stage: range, tokens: int) -> int:
        in_flight, parallel = self.resolved.in_flight_tokens, self.options.decode_context_parallel
        counts = Counter(member.spec for group in self.groups for member in group.members if member.layer in stage)
        return sum(
            count * spec.blocks_for(tokens, in_flight, parallel) * spec.page_bytes for spec, count in counts.items()
        )

    def _blocks_by_group(self, tokens: int) -> list[int]:
        in_flight, parallel = self.resolved.in_flight_tokens, self.options.decode_context_parallel
        return [group.blocks_for(tokens, in_flight, parallel) for group in self.groups]


def plan_layout(facts: ModelFacts, options: EngineOptions) -> KVLayout:
    """The layout vLLM would build.

    Raises:
        Refusal: it would not start with these flags.
    """
    choices = choose(facts, options)
    members = _members(facts, options, choices)
    outermost = block_outermost(facts)
    groups = group_layers(
        members, options.rules, hybrid_manager=choices.resolved.hybrid_manager, block_outermost=outermost
    )
    stage_layers = stages(len(facts.layers), options)
    return KVLayout(
        options=options,
        resolved=choices.resolved,
        block_tokens=_block_tokens(groups, choices),
        kv_dtype=choices.kv_dtype,
        kernels=choices.kernel_names,
        groups=groups,
        block_outermost=outermost,
        stage_layers=stage_layers,
        stage_bytes=tuple(bytes_per_block(groups, block_outermost=outermost, stage=stage) for stage in stage_layers),
        unsplit_by=choices.unsplit_by if options.block_size is not None else None,
    )


def _block_tokens(groups: tuple[Group, ...], choices: Choices) -> int:
    """The ``block_size`` that vLLM reports: attention's; without any that of the states, often the whole context.

    Source: vLLM 0.32 ``v1/engine/core.py``, which takes the smallest of the groups.
    """
    blocks = {member.spec.kind: member.spec.block_tokens for group in groups for member in group.members}
    return blocks["state"] if blocks.keys() == {"state"} else choices.block_tokens


def blocks_for_request(layout: KVLayout, tokens: int) -> int:
    """Blocks vLLM reserves for one request of ``tokens``."""
    return layout.blocks_for_request(tokens)


def block_outermost(facts: ModelFacts) -> bool:
    """Whether a block's layers lie together, so that pages may differ.

    Source: vLLM 0.32 ``v1/attention/backends/utils.py resolve_kv_cache_layout``: only kernels that ask for it get it
    (DeepSeek V4, pooled indexer keys, padded sparse rows); FlashInfer prefers the other kind.
    """
    return any(
        isinstance(cache, CompressedAttention | RingBuffer)
        or (isinstance(cache, LatentAttention) and cache.row_dim is not None)
        for cache in facts.caches
    )


def stages(layers: int, options: EngineOptions) -> tuple[range, ...]:
    """Decoder layers of each pipeline stage: equal parts, the rest one each from the second-last stage backwards.

    Source: vLLM 0.32 ``distributed/utils.py get_pp_indices``; ``VLLM_PP_LAYER_PARTITION`` is ``layer_partition``.
    """
    count = options.pipeline_parallel
    if count == 1:
        return (range(layers),)
    sizes = list(options.layer_partition or [layers // count] * count)
    if len(sizes) != count or (options.layer_partition and sum(sizes) != layers):
        raise Refusal(BAD_FLAG, f"layer partition {sizes} does not add up to {layers} layers in {count} stages.")
    if count > layers:
        raise Refusal(BAD_FLAG, f"pipeline_parallel_size {count} is more than the {layers} layers.")
    for spare in range(0 if options.layer_partition else layers % count):
        sizes[-(spare + 2)] += 1
    bounds = [sum(sizes[:stage]) for stage in range(count + 1)]
    return tuple(range(first, last) for first, last in pairwise(bounds))


def _members(facts: ModelFacts, options: EngineOptions, choices: Choices) -> list[Member]:
    """Caches of the target's layers, then those of the draft, which runs on the last pipeline stage."""
    by_layer = specs_by_layer(facts, facts.layers, options, choices)
    target = [Member(spec, layer) for layer, specs in enumerate(by_layer) for spec in specs]
    drafts = specs_by_layer(facts, draft_layers(facts, options), options, choices)
    return target + [Member(spec, len(facts.layers) - 1) for specs in drafts for spec in specs]
