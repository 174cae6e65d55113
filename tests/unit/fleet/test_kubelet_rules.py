"""Rules of a kubelet that need no cluster: back-off, probe thresholds, addresses, termination messages."""

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

from e2e.fleet import probes
from e2e.fleet.addresses import AddressBlock
from e2e.fleet.container import BackOff, Container, Surroundings, Terminated
from e2e.fleet.process import Exit, Faults, Log, TaskProcess


def test_the_first_restart_is_immediate_then_the_delay_doubles_to_five_minutes() -> None:
    back_off = BackOff(1.0)
    assert [back_off.next(5) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_ten_quiet_minutes_reset_the_delay() -> None:
    back_off = BackOff(1.0)
    for _ in range(4):
        back_off.next(5)
    assert [back_off.next(600), back_off.next(5)] == [0, 10]


def test_a_scale_shortens_the_delays() -> None:
    back_off = BackOff(0.1)
    assert [back_off.next(5) for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("results", "thresholds", "reports"),
    [
        pytest.param([True], {}, [True], id="one success is enough by default"),
        pytest.param([False, False, False, False], {}, [False], id="three failures by default, said once"),
        pytest.param([False, True, False, False, True], {}, [True, True], id="a success starts the count again"),
        pytest.param([True, True], {"successThreshold": 2}, [True], id="more successes asked for"),
        pytest.param([True, False, True], {"failureThreshold": 1}, [True, False, True], id="one failure is enough"),
    ],
)
async def test_a_probe_flips_at_its_thresholds(
    results: list[bool], thresholds: dict[str, int], reports: list[bool]
) -> None:
    seen: list[bool] = []
    answers: Iterator[bool] = iter(results)
    finished = asyncio.Event()

    async def attempt() -> bool:
        for answer in answers:
            return answer
        finished.set()
        await asyncio.Event().wait()
        return False

    running = asyncio.create_task(probes.run({"periodSeconds": 1e-6, **thresholds}, attempt, seen.append))
    await finished.wait()
    running.cancel()
    assert seen == reports


def test_two_fleets_take_different_addresses() -> None:
    one, other = AddressBlock(), AddressBlock()
    with closing(one.kubelet_socket), closing(other.kubelet_socket):
        assert len({one.take(), one.take(), other.take(), other.take()}) == 4
        assert one.node_address != other.node_address


def test_an_address_is_not_used_again_soon() -> None:
    block = AddressBlock()
    with closing(block.kubelet_socket):
        first = block.take()
        block.give_back(first)
        assert block.take() != first


@pytest.mark.parametrize(
    ("policy", "ended", "message"),
    [
        pytest.param("File", Exit(1), "", id="the log is not asked"),
        pytest.param("File", Exit(1, message="in the file"), "in the file", id="the file is"),
        pytest.param("FallbackToLogsOnError", Exit(1), "why it failed\n", id="the log after a failure"),
        pytest.param("FallbackToLogsOnError", Exit(0), "", id="not after success"),
        pytest.param("FallbackToLogsOnError", Exit(1, message="in the file"), "in the file", id="the file first"),
    ],
)
async def test_termination_messages(policy: str, ended: Exit, message: str) -> None:
    def start(_: object, log: Log) -> TaskProcess:
        async def main(_: asyncio.Event) -> int:
            log.write("why it failed")
            return ended.code

        class Process(TaskProcess):
            async def wait(self) -> Exit:
                await super().wait()
                return ended

        return Process(main)

    async def lacks(_: object) -> str:
        return ""

    around = Surroundings("ns/p", "127.0.0.1", "Never", 1, 1, Faults(), start, lacks, lambda: None)
    container = Container({"name": "c", "image": "i", "terminationMessagePolicy": policy}, around)
    await container.run()
    assert isinstance(container.state, Terminated)
    assert container.state.message == message
