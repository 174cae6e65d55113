"""Kernels and the blocks each can work with."""

import pytest

from plimsoll.core.kv.kernels import (
    CPU_MLA,
    FLASH_ATTN,
    FLASH_ATTN_MLA_SPARSE,
    FLASHINFER,
    FLASHINFER_MLA_SPARSE,
    FLASHMLA,
    Kernel,
)


@pytest.mark.parametrize(
    ("kernel", "within", "block"),
    [
        pytest.param(FLASH_ATTN, 16, 16, id="just one kernel block"),
        pytest.param(FLASH_ATTN, 47, 32, id="whole multiples where the kernel splits blocks"),
        pytest.param(FLASH_ATTN, 15, 16, id="none fits: the smallest"),
        pytest.param(FLASHINFER, 47, 32, id="a size of its list"),
        pytest.param(FLASHINFER, 32, 32, id="just that size"),
        pytest.param(FLASHINFER, 1000, 64, id="the largest of its list, no multiple of it"),
        pytest.param(FLASHINFER, 8, 16, id="none of its list fits"),
    ],
)
def test_the_largest_block_within_a_page(kernel: Kernel, within: int, block: int) -> None:
    assert kernel.largest_block_within(within) == block


@pytest.mark.parametrize(
    ("kernel", "block", "accepted"),
    [
        pytest.param(FLASHINFER, 48, True, id="three blocks of 16"),
        pytest.param(FLASHINFER, 24, False, id="no multiple of any"),
        pytest.param(CPU_MLA, 16, True, id="the one block there is"),
        pytest.param(CPU_MLA, 32, False, id="a multiple of a block that is not split"),
    ],
)
def test_blocks_that_a_kernel_accepts(kernel: Kernel, block: int, accepted: bool) -> None:
    assert kernel.accepts(block) is accepted


@pytest.mark.parametrize(
    ("kernel", "block", "row_bytes", "stride"),
    [
        pytest.param(FLASHINFER_MLA_SPARSE, 64, 656, 32 * 656, id="thirty-two rows"),
        pytest.param(FLASH_ATTN_MLA_SPARSE, 64, 656, 656, id="one row"),
        pytest.param(FLASH_ATTN, 64, 1152, 1, id="a kernel that addresses by itself"),
        pytest.param(FLASHMLA, 64, 1152, 1, id="a block that is not split"),
        pytest.param(FLASHMLA, 128, 1152, 64 * 1152, id="split into blocks of 64"),
        pytest.param(FLASHINFER, 96, 10, 32 * 10, id="split into what divides both"),
    ],
)
def test_how_far_blocks_are_apart(kernel: Kernel, block: int, row_bytes: int, stride: int) -> None:
    assert kernel.stride_bytes(block, block * row_bytes) == stride
