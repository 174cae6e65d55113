"""The ledger of a service's life in the world: in order, each entry once, and each decided the same a second time."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.adapters.ports import EVENTS
from plimsoll.core.replay import again
from plimsoll.logs import JSONFormatter
from tests.faults.rig import lifecycle
from tests.faults.rig.run import play, prepared
from tests.faults.rig.scenario import SCENARIOS
from tests.faults.world.world import NAMESPACE, SETTINGS, World, service

LONGEST_LINE = 16_000
"""The kubelet splits a line that is longer than 16 KiB."""


class Lines(logging.Handler):
    """What the operator's log would hold."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(json.loads(JSONFormatter().format(record)))


@pytest.fixture
def ledger() -> Iterator[Lines]:
    log, lines = logging.getLogger("plimsoll.ledger"), Lines()
    level = log.level
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    yield lines
    log.removeHandler(lines)
    log.setLevel(level)


def made_again(entries: list[dict[str, Any]]) -> list[str]:
    """Entries that can be decided again, of which each must come out the same."""
    again_ = [(each, found) for each in entries if (found := again(each)) is not None]
    assert [found for each, found in again_ if not found.same_as(each)] == []
    return [f"{each['kind']} {each['reason']}" for each, _ in again_]


def test_every_plan_and_step_is_told_once_and_decided_the_same_again(ledger: Lines) -> None:
    scenario = SCENARIOS["experiment that is kept"]
    with prepared(scenario) as world:
        play(world, scenario)
    assert {(line["event"], line["service"]) for line in ledger.found} == {("ledger", f"{NAMESPACE}/{lifecycle.NAME}")}
    entries = [line["entry"] for line in ledger.found]
    assert [f"{each['kind']} {each['reason']}" for each in entries] == [
        "Plan FirstPlan",
        "Correction PoolObserved",
        "Retune Trying",
        "Retune Keeping",
        "Plan Experiment",
        "Correction PoolObserved",
        "Retune Kept",
    ]
    assert entries == sorted(entries, key=lambda each: each["time"])
    assert made_again(entries) == [
        "Plan FirstPlan",
        "Retune Trying",
        "Retune Keeping",
        "Plan Experiment",
        "Retune Kept",
    ]
    assert max(map(len, map(json.dumps, ledger.found))) < LONGEST_LINE
    first, second = entries[0], entries[4]
    assert (second["from"], first["inputs"]["model"]) == (first["to"], "Qwen/Qwen3-8B")


def test_a_refusal_is_told_with_what_would_fit(ledger: Lines) -> None:
    with World() as world:
        world.start_operator()
        world.apply(service())
        world.until(lambda: world.is_ready("qwen"))
        world.apply(service(contextTokens=10_000_000))
        world.run(120)
    plans = [line["entry"] for line in ledger.found if line["entry"]["kind"] == "Plan"]
    assert made_again(plans) == ["Plan FirstPlan", "Plan MaxModelLenAboveModel"]
    assert plans[1]["from"] == plans[1]["to"] == plans[0]["to"]
    assert plans[1]["inputs"]["contextTokens"] == "10000000"
    assert "contextTokens" in plans[1]["alternatives"][0]


def test_all_entries_are_events_where_the_owner_asks(ledger: Lines) -> None:
    told = {}
    for events in ("changes", "all"):
        with World(settings=replace(SETTINGS, ledger_events=events)) as world:
            world.start_operator()
            world.apply(service())
            world.until(lambda: world.is_ready("qwen"))
            told[events] = {event["reason"] for event in world.api.listed(EVENTS, NAMESPACE, "")}
    assert "FirstPlan" not in told["changes"]
    assert "FirstPlan" in told["all"]
    assert ledger.found
