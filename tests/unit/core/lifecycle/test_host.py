"""What a pod requests of its host: what grows with ranks, images, offloading and shared memory."""

from dataclasses import replace

import pytest

from plimsoll.core.lifecycle.host import GIB, HostLoad, host
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


ONE = HostLoad(ranks=1, engines=1, sequences=256, context_tokens=131_072, images=False)
IDS_BYTES = 256 * 131_072 * 4


@pytest.mark.parametrize(
    ("load", "nbytes"),
    [
        pytest.param(ONE, 6 * GIB + 2 * GIB + IDS_BYTES + 2 * GIB, id="a process, a rank, token ids, shared memory"),
        pytest.param(replace(ONE, ranks=4), 6 * GIB + 8 * GIB + IDS_BYTES + 8 * GIB, id="four ranks"),
        pytest.param(replace(ONE, engines=4), 6 * GIB + 2 * GIB + 4 * IDS_BYTES + 2 * GIB, id="ids of every engine"),
        pytest.param(replace(ONE, images=True), 10 * GIB + IDS_BYTES + 4 * GIB * 2, id="two caches of images"),
        pytest.param(replace(ONE, images=True, engines=2, api_servers=3), 10 * GIB + 2 * IDS_BYTES + 4 * GIB * 5,
                     id="one for each that reads them"),
        pytest.param(replace(ONE, offloaded_bytes=5 * GIB), 15 * GIB + IDS_BYTES, id="what is offloaded"),
        pytest.param(replace(ONE, shared_memory_bytes=0), 8 * GIB + IDS_BYTES, id="no shared memory"),
        pytest.param(replace(ONE, sequences=0, offloaded_bytes=1), 11 * GIB, id="whole gibibytes"),
    ],
)  # fmt: skip
def test_memory_of_a_pod(load: HostLoad, nbytes: int) -> None:
    assert host(load).memory_bytes == -(-nbytes // GIB) * GIB


def test_a_core_for_each_process() -> None:
    assert host(replace(ONE, ranks=4, engines=2, api_servers=3)).cpu_cores == 9
