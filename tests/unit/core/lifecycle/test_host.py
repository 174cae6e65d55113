"""What a pod requests of its host: what grows with ranks, images, offloading and shared memory."""

import pytest

from plimsoll.core.lifecycle.host import GIB
from tests.unit.core.plan.asking import H100, L40S, plan


@pytest.mark.parametrize(("tensor_parallel", "shared_gib", "cores"), [(1, 2, 3), (2, 4, 4), (8, 16, 10)])
def test_shared_memory_and_cores_follow_the_ranks(tensor_parallel: int, shared_gib: int, cores: int) -> None:
    found = plan("Qwen/Qwen3-32B", H100, 8192, args=[f"--tensor-parallel-size={tensor_parallel}"]).host
    assert found.shared_memory_bytes == shared_gib * GIB
    assert found.cpu_cores == cores
    assert found.memory_bytes > found.shared_memory_bytes + 2 * GIB * tensor_parallel


def test_shared_memory_is_the_users_when_they_say_so() -> None:
    plain = plan("Qwen/Qwen3-8B", L40S, 8192).host
    more = plan("Qwen/Qwen3-8B", L40S, 8192, engine={"sharedMemory": "20Gi"}).host
    assert more.shared_memory_bytes == 20 * GIB
    assert more.memory_bytes - plain.memory_bytes == 18 * GIB


@pytest.mark.parametrize(
    ("flags", "more_gib"),
    [
        pytest.param(["--kv-offloading-size", "20"], 20, id="KV offloaded"),
        pytest.param(["--cpu-offload-gb", "4", "--tensor-parallel-size=2"], 8, id="weights offloaded by each rank"),
    ],
)
def test_what_is_offloaded_is_host_memory(flags: list[str], more_gib: int) -> None:
    plain = plan("Qwen/Qwen3-8B", L40S, 8192, args=[flag for flag in flags if "tensor" in flag])
    assert plan("Qwen/Qwen3-8B", L40S, 8192, args=flags).host.memory_bytes - plain.host.memory_bytes == more_gib * GIB


def test_images_are_cached_twice_unless_nobody_sends_any() -> None:
    images, text = (plan("Qwen/Qwen3-VL-8B-Instruct", L40S, 8192, textOnly=only).host for only in (False, True))
    assert images.memory_bytes - text.memory_bytes == 8 * GIB
    without = plan("Qwen/Qwen3-VL-8B-Instruct", L40S, 8192, args=["--mm-processor-cache-gb", "0"]).host
    assert without.memory_bytes == text.memory_bytes
