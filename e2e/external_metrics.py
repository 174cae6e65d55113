"""An external-metrics API of one number, behind the real aggregator: an APIService onto the Service of `localhost`."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from e2e.controlplane import ControlPlane
from e2e.eventually import eventually

GROUP: Final = "external.metrics.k8s.io"
ROOT: Final = f"/apis/{GROUP}/v1beta1"
NAMESPACE: Final = "kube-system"


class ExternalMetrics:
    """`with ExternalMetrics(plane, "queue") as metrics: metrics.value = 12`, in every namespace."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.value = 0
        self._plane, self._name = plane, name
        self._server = ThreadingHTTPServer(("127.0.0.1", plane.lease_port()), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(plane.tls.certificate, plane.tls.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        kubectl, port = self._plane.kubectl, self._server.server_port
        meta = {"name": "external-metrics", "namespace": NAMESPACE}
        service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service})
        spec = {
            "group": GROUP,
            "version": "v1beta1",
            "service": {"name": meta["name"], "namespace": NAMESPACE, "port": port},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        self._service = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "spec": spec}
        self._service["metadata"] = {"name": f"v1beta1.{GROUP}"}
        kubectl.apply(self._service)
        eventually(self._available)
        return self

    def __exit__(self, *_: object) -> None:
        self._plane.kubectl("delete", "apiservice", f"v1beta1.{GROUP}")
        self._server.shutdown()
        self._server.server_close()

    def _available(self) -> bool:
        found = self._plane.kubectl.get("apiservice", f"v1beta1.{GROUP}")
        conditions = found.get("status", {}).get("conditions") or []
        return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)

    def _answer(self, path: str) -> dict[str, Any]:
        if path == ROOT:
            verbs = {"name": self._name, "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
            resources = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/v1beta1"}
            return {**resources, "resources": [{**verbs, "singularName": ""}]}
        item = {"metricName": self._name, "metricLabels": {}, "timestamp": "2026-01-01T00:00:00Z"}
        values = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/v1beta1", "metadata": {}}
        return {**values, "items": [{**item, "value": str(self.value)}]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(answer(self.path.partition("?")[0])).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Keep the test's output quiet."""

        return Handler
