"""How pods are replaced, by the GPUs that are free and by what is allowed; and the sentence that says why not."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.capacity import Room
from plimsoll.core.surge import Choice, Situation, Way, choose, no_room, rolling, strategy

FREE, FULL = Room(fits=1, gpus_free=1, gpus_taken=7, open=("a",)), Room(gpus_taken=8, open=("a",))
USUAL = Situation(replicas=2, serving=2, starting=0, has_surplus=False, gpus_per_replica=2, max_gpus=8, room=FREE)


@pytest.mark.parametrize(
    ("seen", "way"),
    [
        pytest.param({}, "Surge", id="there is room"),
        pytest.param({"serving": 0, "starting": 1}, "OneAtATime", id="nothing serves, one starts"),
        pytest.param({"serving": 0}, "AllAtOnce", id="nothing serves, nothing starts"),
        pytest.param({"max_gpus": 6}, "Surge", id="just as many GPUs as one more takes"),
        pytest.param({"max_gpus": 5}, "OneAtATime", id="a GPU less than one more takes"),
        pytest.param({"room": FULL}, "OneAtATime", id="no room"),
        pytest.param({"room": FULL, "gpus_per_replica": 1}, "OneAtATime", id="no room for one GPU"),
        pytest.param({"room": FULL, "has_surplus": True}, "Surge", id="one more is there already"),
        pytest.param({"room": FULL, "on_demand": 2}, "Surge", id="the cluster adds just enough"),
        pytest.param({"room": FULL, "on_demand": 1}, "OneAtATime", id="the cluster adds too little"),
        pytest.param({"room": None}, "OneAtATime", id="who may not look counts on none"),
        pytest.param({"pods_per_replica": 2}, "OneAtATime", id="room for one of its two pods"),
        pytest.param({"pods_per_replica": 2, "room": replace(FREE, fits=2)}, "Surge", id="room for both"),
        pytest.param({"exclusive": True}, "OneAtATime", id="a volume that only one may mount"),
        pytest.param({"nowhere": "one more pod is refused"}, "OneAtATime", id="no place whatever is free"),
        pytest.param({"gpus_per_replica": 0, "max_gpus": 3}, "Surge", id="without GPUs they count as one each"),
        pytest.param({"replicas": 1, "room": FULL}, None, id="a single one waits"),
        pytest.param({"replicas": 1, "room": FULL, "may_recreate": True}, "Recreate", id="or is recreated, if allowed"),
    ],
)
def test_the_way(seen: dict[str, Any], way: Way | None) -> None:
    assert choose(replace(USUAL, **seen)).way == way


@pytest.mark.parametrize(
    ("seen", "lasting"),
    [
        pytest.param({"room": FULL}, False, id="a GPU may become free"),
        pytest.param({"max_gpus": 3}, True, id="maxGPUs stays as it is"),
        pytest.param({"max_gpus": 4, "room": FULL}, False, id="maxGPUs is just enough"),
        pytest.param({"room": None}, True, id="nobody may look"),
        pytest.param({"exclusive": True}, True, id="the volume stays as it is"),
    ],
)
def test_who_waits_alone_may_wait_for_ever(seen: dict[str, Any], lasting: bool) -> None:
    chosen = choose(replace(USUAL, replicas=1, serving=1, **seen))
    assert (chosen.way, chosen.lasting) == (None, lasting)


def test_the_budget_is_told_in_gpus() -> None:
    chosen = choose(replace(USUAL, replicas=1, max_gpus=3))
    assert chosen == Choice(None, "one more replica would make 4 GPUs, hardware.maxGPUs is 3", lasting=True)


@pytest.mark.parametrize(
    ("way", "surge", "unavailable"), [("Surge", 1, 0), ("OneAtATime", 0, 1), ("AllAtOnce", 0, "100%")]
)
def test_what_a_deployment_is_told(way: Way, surge: int, unavailable: int | str) -> None:
    assert rolling(way) == {"maxSurge": surge, "maxUnavailable": unavailable}
    assert strategy(way) == {"type": "RollingUpdate", "rollingUpdate": rolling(way)}
    assert strategy("Recreate") == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("room", "text"),
    [
        pytest.param(Room(), "no node of the GPU product is in the cluster", id="none"),
        pytest.param(
            Room(gpus_free=1, gpus_taken=7, open=("b", "a")),
            "no node takes another pod: 1 of 8 GPUs on a, b are free",
            id="too few are free",
        ),
        pytest.param(
            Room(gpus_taken=24, open=("a", "b", "c")),
            "no node takes another pod: 0 of 24 GPUs on a, b, c are free",
            id="three are named",
        ),
        pytest.param(
            Room(gpus_taken=32, open=("a", "b", "c", "d")),
            "no node takes another pod: 0 of 32 GPUs on a, b, c and 1 more are free",
            id="of more the rest is counted",
        ),
        pytest.param(
            Room(tainted=dict.fromkeys("dcba", "team=x:NoSchedule")),
            "no node takes another pod: " + ", ".join(f"{node} has the taint team=x:NoSchedule" for node in "abc"),
            id="taints",
        ),
        pytest.param(
            Room(away=("a",), without_gpu=("b",)),
            "no node takes another pod: a cordoned or not Ready, b labelled with the product but without a GPU to give",
            id="away, and without a GPU",
        ),
    ],
)
def test_why_there_is_no_room(room: Room, text: str) -> None:
    assert no_room(room) == text
