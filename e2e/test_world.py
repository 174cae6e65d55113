"""The world of ``tests/faults`` against a real control plane: one script of operations, the same answers."""

import asyncio
import json
from typing import Any

import pytest

from e2e.controlplane import ControlPlane
from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.labrun import CHECKOUT
from e2e.operator_process import install_crds
from plimsoll.adapters.kube import KubeCluster, load_configuration
from plimsoll.adapters.ports import InvalidError, Kind, Object
from tests.faults.script import differences, script
from tests.faults.world.playing import play

pytestmark = pytest.mark.controlplane


class Real(KubeCluster):
    """The adapter that the operator uses; what people do goes through kubectl."""

    kubectl: Kubectl

    async def patch(self, kind: Kind, namespace: str, name: str, change: Object, manager: str) -> Object:
        where, how = (kind.plural, name, "-n", namespace), ("--type=merge", f"--field-manager={manager}")
        self.kubectl("patch", *where, *how, "-p", json.dumps(change))
        return await self.get(kind, namespace, name)

    async def scale(self, kind: Kind, namespace: str, name: str, replicas: int) -> None:
        try:
            self.kubectl("scale", f"{kind.plural}/{name}", "-n", namespace, f"--replicas={replicas}")
        except KubectlError as error:
            raise InvalidError(str(error), status=422) from error


async def answers(plane: ControlPlane, namespace: str) -> dict[str, Any]:
    real = Real(await load_configuration(str(plane.admin_kubeconfig)))
    real.kubectl = plane.kubectl
    try:
        return await script(real, namespace)
    finally:
        await real.close()


def test_the_world_answers_as_a_real_api_server_does(control_plane: ControlPlane, namespace: str) -> None:
    install_crds(control_plane.kubectl, CHECKOUT / "crds")
    real = asyncio.run(answers(control_plane, namespace))
    world = play(lambda server: script(server, namespace), namespace)
    assert list(world) == list(real)
    wrong = [f"{name}: {each}" for name in world for each in differences(world[name], real[name])]
    assert not wrong, "\n".join(wrong)
