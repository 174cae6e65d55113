"""Recurrent state: which kernels leave checkpoints, how many blocks a request holds, bytes of an element."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.kv import EngineOptions, Refusal, Speculation
from plimsoll.core.kv.states import keeps_every_state, leaves_checkpoint, state_blocks, state_bytes
from plimsoll.facts.models import RecurrentState, StateTensor
from tests.unit.core.kv.recorded import bundled_facts
from tests.unit.core.kv.test_layouts import options

H100, B200, L40S, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-B200", "NVIDIA-L40S", "NVIDIA-A100-SXM4-80GB"
GDN = RecurrentState("gdn", (), key_dim=128)
KDA = RecurrentState("kda", (), key_dim=128, bounded_gate=True)
MAMBA2 = RecurrentState("mamba2", ())


def _on_cpu(version: str = "0.33.0", **flags: Any) -> EngineOptions:
    return replace(options(version=version, **flags), device="cpu")


@pytest.mark.parametrize(
    ("state", "asked", "leaves"),
    [
        pytest.param(MAMBA2, options(), True, id="every Mamba2 mixer"),
        pytest.param(MAMBA2, options(version="0.31.0"), False, id="not before 0.32"),
        pytest.param(MAMBA2, _on_cpu(), True, id="Mamba2 on a CPU too"),
        pytest.param(KDA, options(), True, id="FlashKDA on Hopper"),
        pytest.param(KDA, options(B200), True, id="FlashKDA on Blackwell"),
        pytest.param(KDA, options(A100), False, id="no FlashKDA on Ampere"),
        pytest.param(KDA, options(kda_prefill_backend="triton"), False, id="another kernel was asked for"),
        pytest.param(KDA, options(kda_prefill_backend="flashkda"), True, id="FlashKDA was asked for"),
        pytest.param(replace(KDA, key_dim=64), options(), False, id="heads that FlashKDA was not written for"),
        pytest.param(replace(KDA, bounded_gate=False), options(), False, id="a gate without a bound"),
        pytest.param(KDA, options(version="0.31.0"), False, id="KDA not before 0.32"),
        pytest.param(KDA, _on_cpu(), False, id="no FlashKDA on a CPU"),
        pytest.param(GDN, options(version="0.33.0"), True, id="FlashInfer on Hopper"),
        pytest.param(GDN, options(version="0.32.0"), False, id="FlashInfer not before 0.33"),
        pytest.param(replace(GDN, key_dim=64), options(version="0.33.0"), True, id="any keys on Hopper"),
        pytest.param(GDN, options(B200, "0.33.0"), True, id="128 elements on Blackwell"),
        pytest.param(replace(GDN, key_dim=64), options(B200, "0.33.0"), False, id="other keys on Blackwell"),
        pytest.param(GDN, options(L40S, "0.33.0"), False, id="Ada"),
        pytest.param(GDN, options(version="0.33.0", gdn_prefill_backend="triton"), False, id="Triton was asked for"),
        pytest.param(RecurrentState("mamba1", ()), options(version="0.33.0"), False, id="Mamba1 never does"),
    ],
)
def test_who_leaves_a_checkpoint_in_mid_prefill(state: RecurrentState, asked: EngineOptions, leaves: bool) -> None:
    assert leaves_checkpoint(state, asked) is leaves


DRAFTS = Speculation("mtp", 3)


@pytest.mark.parametrize(
    ("state", "version", "caching", "speculation", "blocks"),
    [
        pytest.param(GDN, "0.32.0", False, None, 1, id="one state"),
        pytest.param(GDN, "0.32.0", False, DRAFTS, 4, id="and one a draft token"),
        pytest.param(GDN, "0.32.0", True, None, 2, id="and one to write"),
        pytest.param(GDN, "0.32.0", True, DRAFTS, 5, id="with drafts"),
        pytest.param(MAMBA2, "0.32.0", True, DRAFTS, 6, id="and a checkpoint"),
        pytest.param(GDN, "0.14.0", False, None, 1, id="an old release without caching"),
        pytest.param(GDN, "0.14.0", True, None, 0, id="an old release keeps none"),
        pytest.param(MAMBA2, "0.24.0", True, DRAFTS, 3, id="one for every block and the drafts'"),
        pytest.param(MAMBA2, "0.22.0", True, DRAFTS, 3, id="from 0.22"),
        pytest.param(MAMBA2, "0.21.0", True, DRAFTS, 0, id="before 0.22 without the drafts'"),
    ],
)
def test_blocks_that_a_request_holds_of_a_state(
    state: RecurrentState, version: str, caching: bool, speculation: Speculation | None, blocks: int
) -> None:
    asked = options(version=version, speculation=speculation)
    assert state_blocks(state, asked, prefix_caching=caching) == blocks


@pytest.mark.parametrize(
    ("kind", "version", "caching", "keeps"),
    [
        ("mamba1", "0.24.0", True, True),
        ("mamba2", "0.14.0", True, True),
        ("mamba2", "0.24.0", False, False),
        ("gdn", "0.24.0", True, False),
        ("mamba2", "0.28.0", True, False),
    ],
)
def test_mamba_once_kept_a_state_for_every_block(kind: Any, version: str, caching: bool, keeps: bool) -> None:
    state = RecurrentState(kind, ())
    assert keeps_every_state(state, options(version=version), prefix_caching=caching) is keeps


CONV = StateTensor("conv", rows=32, columns=3, grows=True, grouped_rows=4)
SSM = StateTensor("ssm", rows=8, columns=128)


@pytest.mark.parametrize(
    ("tensor", "groups", "flags", "nbytes"),
    [
        pytest.param(SSM, 1, {}, 8 * 128 * 2, id="the model's dtype"),
        pytest.param(SSM, 1, {"tensor_parallel": 4}, 2 * 128 * 2, id="a rank's share of the rows"),
        pytest.param(SSM, 1, {"mamba_ssm_cache_dtype": "float32"}, 8 * 128 * 4, id="the recurrence's own flag"),
        pytest.param(SSM, 1, {"mamba_cache_dtype": "float32"}, 8 * 128 * 4, id="the flag of both"),
        pytest.param(CONV, 1, {"mamba_ssm_cache_dtype": "float32"}, 36 * 3 * 2, id="not of the convolution"),
        pytest.param(CONV, 1, {"mamba_cache_dtype": "float32"}, 36 * 3 * 4, id="the convolution's flag"),
        pytest.param(CONV, 1, {"speculation": DRAFTS}, 36 * (3 + 3) * 2, id="columns for draft tokens"),
        pytest.param(CONV, 2, {"tensor_parallel": 4}, (32 + 4 * 4) // 4 * 3 * 2, id="replicated groups"),
        pytest.param(CONV, 8, {"tensor_parallel": 4}, (32 + 4 * 8) // 4 * 3 * 2, id="divided groups"),
        pytest.param(replace(SSM, replicated=True), 1, {"tensor_parallel": 4}, 8 * 128 * 2, id="whole on each rank"),
    ],
)  # fmt: skip
def test_bytes_of_a_state(tensor: StateTensor, groups: int, flags: dict[str, Any], nbytes: int) -> None:
    facts = replace(bundled_facts("Qwen/Qwen3.5-9B"), state_dtype=None)
    state = RecurrentState("mamba2", (tensor,), groups=groups)
    assert state_bytes(state, facts, options(**flags), "bfloat16") == nbytes


def test_a_cpu_keeps_the_recurrence_in_full_precision() -> None:
    facts = replace(bundled_facts("Qwen/Qwen3.5-9B"), state_dtype=None)
    state = RecurrentState("mamba2", (SSM,))
    assert state_bytes(state, facts, _on_cpu(), "bfloat16") == 8 * 128 * 4
    assert state_bytes(state, facts, _on_cpu("0.31.0"), "bfloat16") == 8 * 128 * 2
    assert state_bytes(state, replace(facts, state_dtype="float32"), _on_cpu("0.31.0"), "bfloat16") == 8 * 128 * 4


def test_rows_of_a_state_divide_by_the_ranks() -> None:
    with pytest.raises(Refusal, match="8 rows does not divide by tensor parallel size 3"):
        state_bytes(
            RecurrentState("mamba2", (SSM,)), bundled_facts("Qwen/Qwen3.5-9B"), options(tensor_parallel=3), "bfloat16"
        )
