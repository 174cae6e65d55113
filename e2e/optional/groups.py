"""LeaderWorkerSet's own controller and webhooks, against one control plane.

In a cluster the webhooks are reached through a Service; here by address, with the control plane's own certificate.
They are needed: the one for pods gives each its rank and the leader's address.
"""

import base64
import json
from typing import Any, Final

from e2e.controlplane import ControlPlane, binaries
from e2e.controlplane.api import Api
from e2e.controlplane.targets import LEADER_WORKER_SET
from e2e.optional import crds

READY_SECONDS: Final = 60.0
_SETS: Final = {"apiGroups": ["leaderworkerset.x-k8s.io"], "apiVersions": ["v1"], "resources": ["leaderworkersets"]}
_PODS: Final = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
_NAME: Final = "leaderworkerset"


class LeaderWorkerSets:
    """Installs and removes what a cluster's owner would: definition, controller, webhooks."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._port, self._health_port = plane.lease_port(), plane.lease_port()
        program = binaries.ensure_group(LEADER_WORKER_SET) / "leaderworkerset"
        self._config = plane.workdir / "leaderworkerset.json"
        env = {"KUBECONFIG": str(plane.admin_kubeconfig)}
        self.process = plane.process(_NAME, [str(program), f"--config={self._config}"], env=env)

    def install(self) -> None:
        """Return when groups can be made. As in a cluster, webhooks are there before the controller answers them."""
        self._plane.kubectl.apply(*self._webhooks())
        crds.install(self._plane.kubectl, "leaderworkersets")
        # Its other kind, which nothing here uses: without a definition the controller would end.
        self._plane.kubectl.apply(_unused_definition())
        self._config.write_text(json.dumps(self._configuration()))
        self.process.start()
        health = Api(f"http://127.0.0.1:{self._health_port}", self._plane.ca)
        self.process.await_ready(health.probe("/readyz"), within_seconds=READY_SECONDS)

    def remove(self) -> None:
        """The webhooks first: without a controller behind them no pod could be made."""
        for webhooks in self._webhooks():
            self._plane.kubectl("delete", webhooks["kind"], _NAME, "--ignore-not-found")
        self.process.stop()
        crds.remove(self._plane.kubectl, "leaderworkersets")

    def _configuration(self) -> dict[str, Any]:
        folder = self._plane.workdir / "leaderworkerset-tls"
        folder.mkdir(exist_ok=True)
        for name, source in (("tls.crt", self._plane.tls.certificate), ("tls.key", self._plane.tls.key)):
            (folder / name).write_bytes(source.read_bytes())
        return {
            "apiVersion": "config.lws.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": "127.0.0.1", "port": self._port, "certDir": str(folder)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health_port}"},
        }

    def _webhooks(self) -> list[dict[str, Any]]:
        sets = "leaderworkerset-x-k8s-io-v1-leaderworkerset"
        return [
            self._configured("MutatingWebhookConfiguration", [
                self._webhook("mset", f"/mutate-{sets}", {**_SETS, "operations": ["CREATE", "UPDATE"]}),
                self._webhook("mpod", "/mutate--v1-pod", {**_PODS, "operations": ["CREATE"]}),
            ]),
            self._configured("ValidatingWebhookConfiguration", [
                self._webhook("vset", f"/validate-{sets}", {**_SETS, "operations": ["CREATE", "UPDATE"]}),
            ]),
        ]  # fmt: skip

    @staticmethod
    def _configured(kind: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
        api_version = "admissionregistration.k8s.io/v1"
        return {"apiVersion": api_version, "kind": kind, "metadata": {"name": _NAME}, "webhooks": webhooks}

    def _webhook(self, name: str, path: str, rule: dict[str, Any]) -> dict[str, Any]:
        ca = base64.b64encode(self._plane.ca.read_bytes()).decode()
        return {
            "name": f"{name}.lws.test",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"url": f"https://127.0.0.1:{self._port}{path}", "caBundle": ca},
            "rules": [rule],
        }


def _unused_definition() -> dict[str, Any]:
    group, plural = "disaggregatedset.x-k8s.io", "disaggregatedsets"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"kind": "DisaggregatedSet", "listKind": "DisaggregatedSetList", "plural": plural}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
