"""Every field of the spec, changed alone, changes something that can be seen; or that it does not is written down."""

import json
from typing import Any

import pytest

from plimsoll.adapters.ports import CONFIG_MAPS, SERVICES, VOLUME_CLAIMS
from plimsoll.core.plan.model import bundled_config
from tests.faults.rig.endstate import state
from tests.faults.rig.fields import CHANGES, INERT, Change, paths
from tests.faults.world.world import NAMESPACE, USER, World, service

AT_ONCE_SECONDS = 3.0


@pytest.fixture(scope="module")
def world() -> Any:
    """A cluster without nodes: what a spec asks for shows at once, and nothing ever runs."""
    with World(nodes=(), prometheus_configured=False) as world:
        for name, model in (("one", "Qwen/Qwen3-8B"), ("other", "Qwen/Qwen3-4B")):
            files = {
                f"{key}.json": _config(model if key == "config" else "Qwen/Qwen3-4B") for key in ("config", "other")
            }
            world.api.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": NAMESPACE}, "data": files}, USER)
        for claim in ("weights", "other"):
            spec = {"accessModes": ["ReadWriteMany"]}
            world.api.create(VOLUME_CLAIMS, {"metadata": {"name": claim, "namespace": NAMESPACE}, "spec": spec}, USER)
        operator = world.start_operator()
        world.until(lambda: operator.leads)
        yield world


def _config(model: str) -> str:
    found = bundled_config(model)
    assert found is not None
    return json.dumps(found.config)


def test_every_field_is_either_changed_or_written_down_as_inert() -> None:
    changed = {change.path for change in CHANGES}
    assert changed | INERT.keys() == paths()
    assert not changed & INERT.keys()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.path)
def test_a_field_changed_alone_has_an_effect(world: World, change: Change) -> None:
    name = change.path.replace(".", "-").lower()
    world.apply(service(name, **change.spec(change.before)))
    world.run(AT_ONCE_SECONDS)
    before = _seen(world, name)
    world.apply(service(name, **change.spec(change.after)))
    world.run(AT_ONCE_SECONDS)
    assert not world.unexpected.found
    assert _seen(world, name) != before
    world.delete(SERVICES, name)


def _seen(world: World, name: str) -> Any:
    """Everything of the service but what its user wrote himself."""
    found = {what: value for what, value in state(world).items() if what.partition("/")[2].startswith(name)}
    found[f"VLLMService {NAMESPACE}/{name}"].pop("spec")
    status = world.must(SERVICES, name).get("status", {})
    messages = {c["type"]: c["message"] for c in status.get("conditions") or ()}
    return found, messages, status.get("servedBy")
