"""What the rig has found, each as a named case: it went wrong once."""

from typing import Final

import pytest

from tests.faults import rig
from tests.faults.rig.api_faults import failing
from tests.faults.rig.crash import crashing
from tests.faults.rig.hands import jumping
from tests.faults.rig.moods import moody
from tests.faults.rig.run import CALM, Disturbance, judge, play, prepared
from tests.faults.rig.scenario import SCENARIOS
from tests.faults.rig.snapshot import each_in_a_copy
from tests.faults.rig.views import disconnected, frozen, garbled

rig.load()

FOUND: Final[dict[str, tuple[str, Disturbance]]] = {
    # Any event made a key run again a second after a failure, whatever the server had asked for.
    "Retry-After holds against events too": ("roll-out", failing("429", 0.5, 120.0)),
    # A kind that could not be listed was not listed again before the next sweep, ten minutes later.
    "a right that comes back is noticed within a minute": ("roll-out", failing("403", 0.5, 120.0)),
    # A status that was refused as stale was tried again and again with the same stale object.
    "a status refused as stale is read anew": (
        "roll-out",
        garbled("all events dropped", 0, within_seconds=150.0, dropped=1.0, doubled=0.0, late=0.0),
    ),
    # With pods seen as they were while they loaded, all were taken down together: nobody seemed to serve.
    "pods that are seen too late are not thrown away": ("roll-out", frozen(46)),
    # One more label in the Service's selector cut the fleet off, and counted as somebody else's field.
    "a selector that selects nothing is repaired": ("Service edited", CALM),
    # A revision without its labels was planned anew, with better estimates, and its data may not be changed.
    "a revision that lost its labels gets them back": ("ControllerRevision relabelled", CALM),
    # The budget of two replicas was there before the second one: whoever went on from there deleted it first.
    "a budget follows the count": ("scale up with demand", crashing((3, "after"))),
    # While a new plan could not be written, the pools of pods that still ran the old one were learned as its own.
    "pods teach only the plan that they run": ("plan change accepted", failing("422", 1.0, 120.0)),
    # A watch that broke never told of the deletion: the children came back as often as they were collected, until the
    # next listing. That the status had nobody to be written to was no news.
    "a service that is gone for its status is gone": ("deletion", disconnected(compacted=True)),
    # What was deleted was thought to be there until a watch said otherwise, and deleted at every look.
    "what is deleted is deleted once": (
        "scale down by hand",
        garbled("all events dropped", 0, within_seconds=150.0, dropped=1.0, doubled=0.0, late=0.0),
    ),
    # Seen as it was before its first revision, the service was taken for new: its newest plan became its first.
    "a service of which nothing is seen is not new": ("plan change accepted", frozen(63)),
    # No day of status.load.days was a past one any more, its figures became an empty map, which the API server refuses
    # in place of one with fields: no status was written before the clock was right again. (So it was after idle days.)
    "a status may lose its figures": ("scale up with demand", jumping(-600.0, 0)),
    # After a restart the first plan was made before anybody had read what the statuses keep: PlanUpdateAvailable was
    # taken back, and said again half a minute later.
    "what pods have taught outlives an operator": ("quality gate that passes", crashing((13, "before"), (0, "after"))),
    # An old view showed two replicas; when it ended, the third one, which the operator before had added for a load that
    # was there still, was thought to be an edit by hand and taken down.
    "a count of ours is no edit, whoever of us wrote it": ("demand that stays", frozen(147)),
    # KVPredictionAccurate flipped with every answer that did not come, and the status was written with every tick.
    "what an engine's pool is stays said": ("demand that stays", moody("away at every other tick")),
}


@pytest.mark.parametrize("name", FOUND)
def test_it_does_not_go_wrong_again(name: str) -> None:
    about, disturbance = FOUND[name]
    scenario = SCENARIOS[about]
    with prepared(scenario) as world:
        [calm] = each_in_a_copy([lambda: play(world, scenario)])
        verdict = judge(world, scenario, disturbance, calm)
    assert not verdict.wrong, "\n".join(verdict.wrong)
