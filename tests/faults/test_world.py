"""The world itself: the same for the same seed, and loud where it cannot be faithful."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll.adapters.ports import DEPLOYMENTS, PODS, SERVICES, GoneError, InvalidError
from tests.faults.script import script
from tests.faults.world.admission import TRANSITION_RULE
from tests.faults.world.kinds import UnfaithfulError, crd_schema
from tests.faults.world.playing import play
from tests.faults.world.world import NAMESPACE, World, service

HISTORY = """
from tests.faults.test_world import history
print(history(7))
"""


def history(seed: int) -> str:
    """The hash of everything that happens: two operators, two services, a crash, a change."""
    with World(seed=seed) as world:
        for _ in range(2):
            world.start_operator()
        world.apply(service())
        world.apply(service("other"))
        world.until(lambda: world.is_ready("qwen"))
        world.processes[0].kill()
        world.run(30)
        world.apply(service(contextTokens=16384))
        world.run(60)
        return world.digest()


def test_the_same_seed_gives_the_same_history_in_another_process_too() -> None:
    env = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(["."])}
    other = subprocess.run([sys.executable, "-c", HISTORY], env=env, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == history(7)


def test_the_script_of_the_comparison_runs_in_the_world() -> None:
    assert len(play(lambda server: script(server, "somewhere"), "somewhere")) > 50


def test_what_the_world_cannot_do_it_refuses_loudly() -> None:
    with World() as world:
        with pytest.raises(UnfaithfulError, match="selector"):
            world.api.listed(PODS, NAMESPACE, "a in (b, c)")
        with pytest.raises(UnfaithfulError, match="nobody applies"):
            world.api.apply(PODS, {"metadata": {"name": "p", "namespace": NAMESPACE}}, "us")


def test_the_one_rule_about_a_change_is_the_one_that_is_spelled_out() -> None:
    about_changes = [rule for rule in _rules(crd_schema()) if "oldSelf" in rule]
    assert about_changes == [TRANSITION_RULE]


def _rules(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, inner in schema.items():
            if key == "x-kubernetes-validations":
                yield from (rule["rule"] for rule in inner)
            else:
                yield from _rules(inner)


def test_a_watch_from_a_forgotten_version_is_refused() -> None:
    with World() as world:
        since = world.api.store.version
        world.apply(service())
        assert [event.type for event in world.api.changes(SERVICES, since)] == ["ADDED"]
        world.api.store.compact()
        with pytest.raises(GoneError):
            world.api.changes(SERVICES, since)


def test_a_stopped_process_does_nothing_and_goes_on_later() -> None:
    with World() as world:
        process = world.start_operator()
        world.until(lambda: process.leads)
        process.stopped = True
        world.apply(service())
        world.run(60)
        assert world.find(DEPLOYMENTS, "qwen") is None
        process.stopped = False
        world.until(lambda: world.is_ready("qwen"))


def test_a_tenant_is_told_what_is_wrong() -> None:
    with World() as world, pytest.raises(InvalidError, match=r"spec\.contextTokens"):
        world.apply(service(contextTokens=0))
