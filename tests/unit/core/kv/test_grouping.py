"""Which caches share block tables, and what a block then costs."""

from dataclasses import replace

import pytest

from plimsoll.core.kv.grouping import Group, Member, bytes_per_block, group_layers
from plimsoll.core.kv.refusals import Refusal
from plimsoll.core.kv.rules import rules_of
from plimsoll.core.kv.specs import Kind, LayerSpec
from plimsoll.facts.engines import EngineVersion

FULL = LayerSpec("full", 16, 1600, "full")
SLIDING = LayerSpec("sliding", 16, 1600, "sliding", window_tokens=1024)
LATENT = LayerSpec("latent", 16, 1600, "latent")
STATE = LayerSpec("state", 4096, 900, "state", state_blocks=1, sharded=False)
RING = LayerSpec("ring", 8, 100, "ring", sharded=False)


def _members(*counted: tuple[LayerSpec, int]) -> list[Member]:
    specs = [spec for spec, count in counted for _ in range(count)]
    return [Member(spec, layer) for layer, spec in enumerate(specs)]


def _grouped(
    *counted: tuple[LayerSpec, int], version: str = "0.32.0", hybrid: bool = True, outermost: bool = False
) -> list[list[tuple[Kind, int, int]]]:
    """Each group's caches: kind, tokens and bytes of a page."""
    groups = group_layers(
        _members(*counted), rules_of(EngineVersion.parse(version)), hybrid_manager=hybrid, block_outermost=outermost
    )
    return [[(m.spec.kind, m.spec.block_tokens, m.spec.page_bytes) for m in group.members] for group in groups]


@pytest.mark.parametrize(
    ("counted", "sizes"),
    [
        pytest.param([(FULL, 4)], [4], id="one kind is one group"),
        pytest.param([(FULL, 2), (LATENT, 2)], [4], id="full and latent share a table"),
        pytest.param([(FULL, 2), (SLIDING, 6)], [2, 2, 2, 2], id="as many as the rarest kind has"),
        pytest.param([(FULL, 2), (SLIDING, 5)], [2, 2, 2, 1], id="the last one is not full"),
        pytest.param([(FULL, 4), (SLIDING, 5)], [4, 5], id="nearly equal kinds take the most frequent's number"),
        pytest.param([(FULL, 4), (SLIDING, 6)], [4, 3, 3], id="half as many again is not nearly equal"),
        pytest.param([(SLIDING, 2), (replace(SLIDING, window_tokens=512), 2)], [2, 2], id="two windows are two kinds"),
        pytest.param(
            [(FULL, 2), (replace(FULL, sharded=False), 2)], [2, 2], id="split tokens and kept ones are two kinds"
        ),
        pytest.param([(FULL, 2), (replace(FULL, block_tokens=8), 2)], [2, 2], id="two sizes of block are two kinds"),
    ],
)
def test_layers_of_a_group(counted: list[tuple[LayerSpec, int]], sizes: list[int]) -> None:
    assert [len(group) for group in _grouped(*counted)] == sizes


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(STATE, state_blocks=2), id="held in other numbers"),
        pytest.param(replace(STATE, replicated=True), id="whole on every rank"),
    ],
)
def test_states_that_differ_do_not_share_a_table(other: LayerSpec) -> None:
    assert len(_grouped((STATE, 2), (replace(STATE, content="like it"), 2))) == 1
    assert len(_grouped((STATE, 2), (other, 2))) == 2


def test_states_of_two_sizes_share_a_table_once_they_are_padded() -> None:
    assert _grouped((STATE, 1), (replace(STATE, padded_bytes=1000), 1)) == [[("state", 4096, 1000)] * 2]


def test_without_the_manager_windows_are_full() -> None:
    assert _grouped((FULL, 1), (SLIDING, 2), hybrid=False) == [[("full", 16, 1600)] * 3]
    assert _grouped((SLIDING, 2), hybrid=False) == [[("sliding", 16, 1600)] * 2], "one kind needs no promotion"


def test_without_the_manager_windows_take_the_block_of_full_attention() -> None:
    small = replace(SLIDING, block_tokens=8, natural_bytes=800)
    assert _grouped((FULL, 1), (small, 1), hybrid=False) == [[("full", 16, 1600)] * 2]


def test_without_the_manager_two_windows_cannot_be_one_kind() -> None:
    with pytest.raises(Refusal, match="Failed to promote"):
        _grouped((SLIDING, 1), (replace(SLIDING, window_tokens=512), 1), hybrid=False)


@pytest.mark.parametrize(
    ("other", "page"),
    [
        pytest.param(replace(SLIDING, natural_bytes=800), ("sliding", 32, 1600), id="half a page: twice the tokens"),
        pytest.param(replace(SLIDING, natural_bytes=900), ("sliding", 16, 1600), id="no divisor: padded"),
        pytest.param(
            replace(STATE, natural_bytes=800), ("state", 4096, 1600), id="a state is padded even if it divides"
        ),
    ],
)
def test_pages_are_made_equal(other: LayerSpec, page: tuple[Kind, int, int]) -> None:
    assert _grouped((FULL, 1), (other, 1)) == [[("full", 16, 1600)], [page]]


@pytest.mark.parametrize(
    ("version", "odd"),
    [
        pytest.param("0.24.0", replace(SLIDING, natural_bytes=900), id="before 0.25 nothing is padded"),
        pytest.param("0.32.0", replace(LATENT, block_tokens=8, natural_bytes=900), id="latents never are"),
        pytest.param("0.27.0", STATE, id="nor states before 0.28"),
    ],
)
def test_pages_that_do_not_divide_are_refused(version: str, odd: LayerSpec) -> None:
    with pytest.raises(Refusal, match="900 bytes does not divide"):
        _grouped((FULL, 1), (odd, 1), version=version)


def test_pages_may_differ_where_a_block_lies_together() -> None:
    """Full attention of two sizes twice each is two repeats of a pattern: windows are grouped by two as well."""
    small = replace(LATENT, natural_bytes=400, content="small")
    window = replace(SLIDING, natural_bytes=1000)
    groups = _grouped((FULL, 2), (small, 2), (window, 4), outermost=True)
    assert [len(group) for group in groups] == [4, 2, 2]
    assert {page for group in groups for page in group} == {
        ("full", 16, 1600),
        ("latent", 16, 400),
        ("sliding", 16, 1000),
    }


def test_pages_that_are_equal_are_grouped_as_anywhere() -> None:
    assert [len(group) for group in _grouped((FULL, 4), (SLIDING, 5), outermost=True)] == [4, 5]


def test_states_are_split_to_fit_the_block_that_attention_needs() -> None:
    """Two full layers are 3,200 bytes of a block: three states of 900 bytes fit, seven take three groups."""
    groups = _grouped((FULL, 2), (STATE, 7), outermost=True)
    assert sorted(len(group) for group in groups) == [2, 2, 2, 3]


def test_a_block_costs_the_widest_group() -> None:
    groups = (Group(tuple(_members((FULL, 2)))), Group(tuple(_members((replace(SLIDING, natural_bytes=1000), 3)))))
    assert bytes_per_block(groups, block_outermost=False) == 3200
    assert bytes_per_block(groups, block_outermost=True) == 3200
    assert bytes_per_block((), block_outermost=True) == 0


def test_a_block_of_a_stage_counts_its_own_layers() -> None:
    groups = (Group(tuple(_members((FULL, 4)))),)
    assert [bytes_per_block(groups, block_outermost=False, stage=stage) for stage in (range(3), range(3, 4))] == [
        4800,
        1600,
    ]
    assert bytes_per_block(groups, block_outermost=True, stage=range(3, 4)) == 1600


def test_blocks_are_whole_strides_apart() -> None:
    """One after another each layer is rounded up; together the block is, to what suits all of them."""
    odd = (
        Group(tuple(_members((replace(LATENT, stride_bytes=512), 2)))),
        Group(tuple(_members((replace(FULL, stride_bytes=600), 1)))),
    )
    assert bytes_per_block(odd, block_outermost=False) == 2 * 2048
    assert bytes_per_block(odd, block_outermost=True) == 38400
