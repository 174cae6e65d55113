"""A load that is learned over midnight: offered and not forced, kept by the next operator, and not written again."""

from dataclasses import replace
from typing import Any, Final

from plimsoll.adapters.ports import DEPLOYMENTS, REVISIONS, SERVICES
from plimsoll.api import names
from tests.faults.world.engines import Offered
from tests.faults.world.virtual_time import Agenda
from tests.faults.world.world import NAMESPACE, SETTINGS, World, service

HALF_PAST_ELEVEN: Final = 23.5 * 3600
DECLARED: Final = {"concurrency": 2, "promptTokens": 300, "outputTokens": 100}
REAL: Final = Offered(requests_per_second=3.0, prompt_tokens=1200, output_tokens=300)


def status_of(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.must(SERVICES, "qwen")["status"]
    return found


def writes(world: World) -> int:
    """Versions that the service has had."""
    return sum(e.kind is SERVICES for e in world.api.store.history)


def test_it_is_offered_kept_and_written_once() -> None:
    with World(agenda=Agenda(now=HALF_PAST_ELEVEN)) as world:
        operator = world.start_operator()
        world.apply(service(load=DECLARED, scaling={"minReplicas": 2, "maxReplicas": 2}))
        world.until(lambda: world.is_ready("qwen"))
        world.ward.offered[NAMESPACE, "qwen"] = REAL
        world.run(20 * 60)
        assert [day["date"] for day in status_of(world)["load"]["days"]] == ["2026-03-01"]
        assert world.condition("qwen", "PlanUpdateAvailable")["status"] == "False", "one day is an accident"
        pods = sorted(pod["metadata"]["uid"] for pod in world.pods("qwen"))

        world.until(lambda: len(status_of(world)["load"]["days"]) == 2, within_seconds=3600)
        figures = status_of(world)["load"]["figures"]
        assert figures["promptTokens"] == {"declared": 300, "observed": 1200, "counts": 1200}
        assert figures["outputTokens"] == {"declared": 100, "observed": 300, "counts": 300}
        assert figures["requestsPerSecond"]["observed"] >= 3
        offered = world.condition("qwen", "PlanUpdateAvailable")
        assert offered["status"] == "True"
        assert "for the load that was observed" in offered["message"]

        world.run(10 * 60)
        known, settled = status_of(world)["load"], writes(world)
        operator.kill()
        world.run(60)
        world.start_operator()
        world.run(10 * 60)
        assert status_of(world)["load"]["figures"] == known["figures"]
        assert writes(world) - settled <= 1, "steady traffic is no news, to nobody; a thousand requests once"
        assert sorted(pod["metadata"]["uid"] for pod in world.pods("qwen")) == pods, "nothing was restarted for it"

        world.ward.offered[NAMESPACE, "qwen"] = Offered()
        world.run(10 * 60)
        rest = writes(world)
        world.run(15 * 60)
        assert writes(world) == rest, "a service at rest is not written"

        world.apply(service(load=DECLARED, scaling={"minReplicas": 2, "maxReplicas": 2}, contextTokens=16384))
        world.until(lambda: world.is_ready("qwen"))
        assert any("observed" in note for note in status_of(world)["plan"]["assumptions"]), "the next plan knows it"
        assert world.condition("qwen", "PlanUpdateAvailable")["status"] == "False"


CAPPED: Final[dict[str, Any]] = {
    "scaling": {"mode": "Fixed"},
    "replicas": 2,
    "load": {"concurrency": 4, "promptTokens": 1000, "outputTokens": 200},
}
SHOWN: Final = {"requests": 1000, "hours": 6, "promptTokens": 2000, "outputTokens": 900}


def test_an_experiment_brings_its_flag_and_no_other_load() -> None:
    """Days have shown longer requests; what the operator rolls out by itself is planned without them all the same."""
    settings = replace(SETTINGS, experiment_window_seconds=15.0, experiments_per_day=1)
    with World(settings=settings) as world:
        operator = world.start_operator()
        world.apply(service(**CAPPED))
        world.until(lambda: world.is_ready("qwen"))
        operator.kill()
        days = [{"date": date, **SHOWN} for date in ("2026-02-27", "2026-02-28")]
        world.api.patch(
            SERVICES, NAMESPACE, "qwen", {"status": {"load": {"days": days}}}, names.MANAGER_STATUS, "status"
        )
        world.start_operator()
        world.ward.offered[NAMESPACE, "qwen"] = Offered(40.0)
        world.apply(service(**CAPPED, tuning={"mode": "Auto", "allow": ["MaxNumSeqs"]}))

        def kept() -> bool:
            past = status_of(world).get("tuning", {}).get("past") or [{}]
            return bool(past[-1].get("outcome") == "kept")

        world.until(kept, within_seconds=2400.0)
        world.until(lambda: world.is_ready("qwen"))
        assert status_of(world)["load"]["figures"]["promptTokens"]["counts"] == 2000
        args = world.must(DEPLOYMENTS, "qwen")["spec"]["template"]["spec"]["containers"][0]["args"]
        assert "--max-num-seqs=64" in args
        newest = max(world.api.store.all(REVISIONS), key=lambda revision: revision["revision"])
        assert "load" not in newest["data"]
        assert newest["data"]["plan"]["typical"]["promptTokens"] == 1000
