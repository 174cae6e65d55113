"""How vLLM sorts layers into groups that share block tables, and what one block then costs.

Source: vLLM 0.32 ``v1/core/kv_cache_utils.py get_kv_cache_groups`` and what it calls.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm

from plimsoll.core.kv.refusals import BAD_FLAG, Refusal
from plimsoll.core.kv.rules import CacheRules
from plimsoll.core.kv.specs import LayerSpec, ceil_div, round_up

_WINDOWED = frozenset({"sliding", "sliding_latent"})
_FULL = frozenset({"full", "latent"})


@dataclass(frozen=True, slots=True)
class Member:
    """One cache of one layer: its spec and the decoder layer it belongs to."""

    spec: LayerSpec
    layer: int


@dataclass(frozen=True, slots=True)
class Group:
    """Caches that share block tables: one block id is one page of each."""

    members: tuple[Member, ...]

    @property
    def specs(self) -> tuple[LayerSpec, ...]:
        """Distinct specs of the group, in order."""
        return tuple(dict.fromkeys(member.spec for member in self.members))

    def blocks_for(self, tokens: int, in_flight_tokens: int, context_parallel: int) -> int:
        """Blocks a request of ``tokens`` may hold of this group."""
        return max(spec.blocks_for(tokens, in_flight_tokens, context_parallel) for spec in self.specs)


def group_layers(
    members: Sequence[Member], rules: CacheRules, *, hybrid_manager: bool, block_outermost: bool
) -> tuple[Group, ...]:
    """Sort caches into groups.

    Raises:
        Refusal: the hybrid manager is off and the layers cannot be made one kind, or pages cannot be made equal.
    """
    if not members:
        return ()
    if not hybrid_manager:
        members = _without_manager(members)
    if _uniform(member.spec for member in members):
        return (Group(tuple(members)),)
    if block_outermost and len({member.spec.page_bytes for member in members}) > 1:
        return _packed(members)
    return _equal_pages(_unify_pages(members, rules), rules)


def _uniform(specs: Iterable[LayerSpec]) -> bool:
    """Whether one block table serves all: same kind, same tokens a block, same window."""
    distinct = tuple(dict.fromkeys(specs))
    first = distinct[0]
    return all(_compatible(first, other) for other in distinct[1:])


def _compatible(first: LayerSpec, other: LayerSpec) -> bool:
    if first.block_tokens != other.block_tokens or first.sharded != other.sharded:
        return False
    if first.kind in _FULL:
        return other.kind in _FULL
    if first.kind != other.kind:
        return False
    if first.kind == "state":
        same_blocks = first.state_blocks == other.state_blocks and first.replicated == other.replicated
        return same_blocks and first.page_bytes == other.page_bytes
    return first.window_tokens == other.window_tokens


def _without_manager(members: Sequence[Member]) -> list[Member]:
    """Budget windows for every token where full attention is present too."""
    if _uniform(member.spec for member in members):
        return list(members)
    full_blocks = {member.spec.block_tokens for member in members if member.spec.kind in _FULL}
    promoted = list(members)
    if full_blocks:
        shared = next(iter(full_blocks)) if len(full_blocks) == 1 else None
        promoted = [Member(m.spec.as_full(shared or m.spec.block_tokens), m.layer) for m in members]
    if not _uniform(member.spec for member in promoted):
        raise Refusal(BAD_FLAG, "Failed to promote local KV cache specs to one unified type.")
    return promoted


def _unify_pages(members: Sequence[Member], rules: CacheRules) -> list[Member]:
    """Give every layer the largest page: more tokens a block where that divides, padding where it does not."""
    largest = max(member.spec.page_bytes for member in members)
    fitted: dict[LayerSpec, LayerSpec] = {}
    for member in members:
        if member.spec not in fitted:
            fitted[member.spec] = _fit_page(member.spec, largest, rules)
    return [Member(fitted[member.spec], member.layer) for member in members]


def _fit_page(spec: LayerSpec, page_bytes: int, rules: CacheRules) -> LayerSpec:
    if spec.page_bytes == page_bytes:
        return spec
    if spec.kind == "state" and rules.pads_states:
        return spec.padded_to(page_bytes)
    if page_bytes % spec.page_bytes == 0:
        return spec.with_block(spec.block_tokens * (page_bytes // spec.page_bytes))
    if spec.kind in {"latent", "sliding_latent", "state"} or not rules.pads_pages:
        raise Refusal(
            BAD_FLAG,
            f"A page of {spec.page_bytes} bytes does not divide the largest page of {page_bytes} bytes and cannot be "
            "padded.",
        )
    return spec.padded_to(page_bytes)


def _equal_pages(members: Sequence[Member], rules: CacheRules) -> tuple[Group, ...]:
    """Groups of as many layers as the rarest kind has; nearly equal kinds take the most frequent's number."""
    buckets: dict[LayerSpec, list[Member]] = {}
    for member in members:
        buckets.setdefault(member.spec, []).append(member)
    fewest, most = min(map(len, buckets.values())), max(map(len, buckets.values()))
    size = most if most < fewest * rules.nearly_equal else fewest
    return tuple(
        Group(tuple(bucket[start::count]))
        for bucket in buckets.values()
        for count in (ceil_div(len(bucket), size),)
        for start in range(count)
    )


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Layers of compatible kind, by page size; balanced when every size occurs equally often."""

    members: tuple[Member, ...]
    by_page: Mapping[int, tuple[Member, ...]]

    @property
    def balanced(self) -> bool:
        return len({len(part) for part in self.by_page.values()}) == 1

    @property
    def repeats(self) -> int:
        """How often each page size occurs, where it is balanced."""
        return len(next(iter(self.by_page.values())))

    @property
    def first(self) -> LayerSpec:
        return self.members[0].spec

    def widest(self, groups: int) -> int:
        """Bytes of the widest of ``groups`` parts."""
        return sum(ceil_div(len(part), groups) * page for page, part in self.by_page.items())


def _packed(members: Sequence[Member]) -> tuple[Group, ...]:
    """Groups for layouts that keep a block's layers together, whose pages may differ.

    Kinds that repeat a pattern of page sizes set how many repeats a group holds; state is split to fit the block that
    attention needs anyway.
    """
    buckets = _buckets(members)
    floor = max((bucket.repeats for bucket in buckets if bucket.balanced and len(bucket.by_page) > 1), default=0)
    repeats = _least_padding([b.repeats for b in buckets if b.balanced], floor) if floor else None
    anchor = max(
        bucket.widest(len(bucket.members) if _is_state(bucket, repeats) else _parts(bucket, repeats))
        for bucket in buckets
    )
    return tuple(group for bucket in buckets for group in _split(bucket, repeats, anchor))


def _buckets(members: Sequence[Member]) -> list[_Bucket]:
    """Layers that one block table could serve, in order of their first."""
    kinds: list[list[LayerSpec]] = []
    for spec in dict.fromkeys(member.spec for member in members):
        fitting = (kind for kind in kinds if all(_compatible(other, spec) for other in kind))
        kind = next(fitting, None)
        if kind is None:
            kinds.append([spec])
        else:
            kind.append(spec)
    return [_bucket([member for member in members if member.spec in kind]) for kind in map(frozenset, kinds)]


def _bucket(members: Sequence[Member]) -> _Bucket:
    by_page: dict[int, list[Member]] = {}
    for member in members:
        by_page.setdefault(member.spec.page_bytes, []).append(member)
    return _Bucket(tuple(members), {page: tuple(part) for page, part in by_page.items()})


def _least_padding(repeats: Sequence[int], floor: int) -> int:
    """The group length from ``floor`` up that wastes least when counts are rounded up to it; ties take the longer."""
    longest = max(repeats)
    return min(
        range(floor, max(floor, longest) + 1),
        key=lambda length: (sum(-count % length for count in repeats), -length),
    )


def _is_state(bucket: _Bucket, repeats: int | None) -> bool:
    return bucket.first.kind in {"state", "ring"} or (repeats is None and bucket.first.kind in _WINDOWED)


def _parts(bucket: _Bucket, repeats: int | None) -> int:
    return ceil_div(bucket.repeats, repeats) if bucket.balanced and repeats is not None else 1


def _split(bucket: _Bucket, repeats: int | None, anchor_bytes: int) -> list[Group]:
    parts = _parts(bucket, repeats)
    if _is_state(bucket, repeats):
        fitting = max(anchor_bytes // bucket.first.page_bytes, 1)
        parts = max(parts, ceil_div(len(bucket.members), fitting))
    if parts == 1:
        return [Group(bucket.members)]
    patterns = list(zip(*bucket.by_page.values(), strict=False))
    return [Group(tuple(m for pattern in patterns[start::parts] for m in pattern)) for start in range(parts)]


def bytes_per_block(groups: Sequence[Group], *, block_outermost: bool, stage: range | None = None) -> int:
    """Bytes of one block id on a rank: the widest group's pages; ``stage`` counts only its own layers."""
    if not groups:
        return 0
    if block_outermost:
        widest = max(sum(spec.page_bytes for spec in _on_stage(group, stage)) for group in groups)
        return round_up(widest, lcm(*(spec.stride_bytes for group in groups for spec in _on_stage(group, stage))))
    return max(sum(spec.stride for spec in _on_stage(group, stage)) for group in groups)


def _on_stage(group: Group, stage: range | None) -> list[LayerSpec]:
    return [member.spec for member in group.members if stage is None or member.layer in stage]
