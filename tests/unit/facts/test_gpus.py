import json
from pathlib import Path

import pytest

from plimsoll.facts import gpus


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA-H100-80GB-HBM3",
        "NVIDIA H100 80GB HBM3",
        "nvidia_h100_80gb_hbm3",
        "NVIDIA-H100-80GB-HBM3-SHARED",
    ],
)
def test_label_and_device_name_find_the_same_part(name: str) -> None:
    found = gpus.find(name)
    assert found is not None
    assert (found.label, found.capability, found.mig_profile) == ("NVIDIA-H100-80GB-HBM3", (9, 0), None)


def test_a_slice_has_its_share_of_the_part() -> None:
    whole, part = gpus.find("NVIDIA-H100-80GB-HBM3"), gpus.find("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb")
    assert whole is not None
    assert part is not None
    assert part.mig_profile == "1g.10gb"
    assert part.memory_driver_bytes == whole.memory_driver_bytes // 8
    assert part.nvlink_bytes_per_second == 0
    assert part.dense_flops["bf16"] == pytest.approx(whole.dense_flops["bf16"] / 7)


def test_the_longest_known_name_wins() -> None:
    a100, large = gpus.find("NVIDIA-A100-SXM4-40GB"), gpus.find("NVIDIA-A100-SXM4-80GB")
    assert a100 is not None
    assert large is not None
    assert a100.memory_driver_bytes < large.memory_driver_bytes


def test_unknown_parts_are_none_with_neighbours() -> None:
    assert gpus.find("NVIDIA-H1000") is None
    assert gpus.find("") is None
    assert "NVIDIA-H100-80GB-HBM3" in gpus.nearest("NVIDIA-H100-80GB-HBM2")


@pytest.mark.parametrize("short", ["H100", "A100", "4090", "MI300"])
def test_a_part_of_a_name_finds_the_products_that_hold_it(short: str) -> None:
    assert gpus.find(short) is None
    assert short.lower() in gpus.nearest(short)[0].lower()
    assert gpus.nearest("") == ()


def test_every_row_is_read_and_sane() -> None:
    rows = json.loads((Path(gpus.__file__).with_name("gpus.json")).read_text(encoding="utf-8"))["gpus"]
    found = [gpus.find(row["id"]) for row in rows]
    assert len(rows) >= 26
    for gpu in found:
        assert gpu is not None
        assert 0.9 * gpu.memory_driver_bytes < gpu.torch_total_bytes <= gpu.memory_driver_bytes
        assert gpu.bandwidth_bytes_per_second > 1e11
        assert gpu.supports("fp16") or gpu.supports("bf16")


@pytest.mark.parametrize(("gib", "share"), [(80, 0.995), (24, 0.98)])
def test_torch_sees_a_little_less_than_the_driver(gib: int, share: float) -> None:
    total = gib * gpus.GIB
    assert gpus.torch_total_bytes(total) == int(total * share)
