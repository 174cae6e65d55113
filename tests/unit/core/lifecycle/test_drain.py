"""How a pod ends: endpoints leave first, generations finish, and the kill comes after both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.core.lifecycle.drain import MOST_SECONDS, Generation, drain
from tests.unit.core.plan.asking import H100, L40S, answer, flags, load, plan, refusal

generations = st.builds(
    Generation,
    context_tokens=st.integers(1, 2**24),
    output_tokens=st.none() | st.integers(1, 2**20),
    first_token_seconds=st.none() | st.floats(0, 1e4),
    token_seconds=st.none() | st.floats(1e-4, 10),
)


@given(generations, st.booleans(), st.none() | st.floats(0.001, 1e5), st.none() | st.floats(0.001, 600))
def test_the_grace_is_longer_than_what_comes_before_it(
    generation: Generation, knows: bool, timeout: float | None, delay: float | None
) -> None:
    found = drain(generation, knows_timeout=knows, timeout_seconds=timeout, endpoint_seconds=delay)
    after_sigterm = found.timeout_seconds if knows else 0
    assert found.grace_seconds > found.pre_stop_seconds + after_sigterm
    assert found.pre_stop_seconds >= 1
    if timeout is None:
        assert found.timeout_seconds >= min(generation.seconds, MOST_SECONDS)
        assert 60 <= found.timeout_seconds <= MOST_SECONDS


@pytest.mark.parametrize(
    ("generation", "seconds", "says"),
    [
        pytest.param(Generation(8192, 400, 2.0, 0.05), 90, "1,600 at 50 ms: 82 s", id="four times what is typical"),
        pytest.param(Generation(1000, 400, None, 0.1), 120, "1,000 at 100 ms", id="never more than the context"),
        pytest.param(
            Generation(131_072, None, None, 0.02), 540, "2,621 s, cut to 540 s", id="a bound for long contexts"
        ),
        pytest.param(Generation(8192, 10, 0.5, 0.01), 60, "at least 60 s", id="a floor for short answers"),
        pytest.param(Generation(4096, None, None, None), 420, "4,096 at 100 ms", id="no latency known"),
    ],
)
def test_the_timeout_is_the_longest_generation(generation: Generation, seconds: int, says: str) -> None:
    found = drain(generation, knows_timeout=True)
    assert found.timeout_seconds == seconds
    assert says in found.basis


def test_the_flag_and_the_grace_say_the_same() -> None:
    found = plan("Qwen/Qwen3-8B", L40S, 8192, load=load(8))
    assert flags(found)["--shutdown-timeout"] == str(found.drain.timeout_seconds)
    assert found.drain.grace_seconds == 10 + found.drain.timeout_seconds + 30


@pytest.mark.parametrize("version", ["0.11.0", "0.16.0", "0.17.1"])
def test_a_release_without_the_flag_goes_on_serving_instead(version: str) -> None:
    """0.17 lies between a recorded release without the flag and one with it: an unknown flag ends the engine."""
    found = plan("Qwen/Qwen3-8B", L40S, 8192, engine={"version": version}, drain={"timeout": "2m"})
    assert "--shutdown-timeout" not in found.choice.args
    assert found.drain.pre_stop_seconds == 10 + 120
    assert any("has no --shutdown-timeout" in note for note in found.assumptions)


def test_what_the_user_asks_for_wins() -> None:
    asked = plan("Qwen/Qwen3-8B", L40S, 8192, drain={"timeout": "20m", "endpointDelay": "15s"}).drain
    assert (asked.pre_stop_seconds, asked.timeout_seconds, asked.grace_seconds) == (15, 1200, 1245)
    own = plan("Qwen/Qwen3-8B", L40S, 8192, args=["--shutdown-timeout", "700"]).drain
    assert own.grace_seconds > 700


@pytest.mark.parametrize(
    ("host", "fine"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True), ("::", True)]
)
def test_an_engine_must_be_reachable_from_outside_its_container(host: str, fine: bool) -> None:
    found = answer("Qwen/Qwen3-8B", L40S, 8192, args=["--host", host])
    assert (getattr(found, "reason", None) is None) is fine


@pytest.mark.parametrize("value", ["soon", "-1", "9999999", "1.5"])
def test_a_timeout_that_is_no_number_is_refused(value: str) -> None:
    found = refusal("Qwen/Qwen3-8B", L40S, 8192, args=[f"--shutdown-timeout={value}"])
    assert found.reason == "BadFlag"
    assert "--shutdown-timeout" in found.message


@pytest.mark.parametrize("minimum", [1, 4])
def test_the_times_do_not_move_with_the_number_of_replicas(minimum: int) -> None:
    """An autoscaler that moves bounds must not make another pod template."""
    found = plan("Qwen/Qwen3-8B", H100, 8192, load=load(16), scaling={"minReplicas": minimum})
    assert found.drain == plan("Qwen/Qwen3-8B", H100, 8192, load=load(16)).drain


@pytest.mark.parametrize(
    ("seconds", "timeout", "cut"),
    [
        pytest.param(540.0, 540, "", id="just the most"),
        pytest.param(541.0, 540, ", cut to 540 s", id="more"),
        pytest.param(60.0, 60, "", id="just the least"),
        pytest.param(59.0, 60, ", at least 60 s", id="less"),
        pytest.param(61.0, 90, "", id="in steps of half a minute"),
        pytest.param(90.0, 90, "", id="a whole step"),
    ],
)
def test_a_timeout_says_when_it_was_cut(seconds: float, timeout: int, cut: str) -> None:
    found = drain(Generation(1, None, None, seconds), knows_timeout=True)
    assert (found.timeout_seconds, found.basis) == (timeout, f"1 at {seconds * 1000:.0f} ms: {seconds:.0f} s{cut}")


@pytest.mark.parametrize(("knows", "pre_stop"), [(True, 8), (False, 8 + 65)])
def test_an_engine_without_the_flag_is_waited_for_before_its_end(knows: bool, pre_stop: int) -> None:
    found = drain(Generation(1, None, 2.0, 1.0), knows_timeout=knows, timeout_seconds=64.5, endpoint_seconds=7.2)
    assert (found.pre_stop_seconds, found.timeout_seconds, found.grace_seconds) == (pre_stop, 65, 8 + 65 + 30)
    assert found.basis == "as asked"


def test_a_first_token_is_waited_for_as_well() -> None:
    found = drain(Generation(100, None, 30.0, 1.0), knows_timeout=True)
    assert (found.timeout_seconds, found.pre_stop_seconds) == (150, 10)
    assert found.basis == "a first token after 30 s, 100 at 1000 ms: 130 s"
