"""Who wrote what, in the order in which the API server took it: its audit log, read back."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

REFUSED: Final = 300


@dataclass(frozen=True, slots=True)
class Write:
    """One write that was accepted. `object` is what the API server then held (empty after a deletion)."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    at: str
    object: dict[str, Any]


class AuditLog:
    """Turn it on with `extra_args={"kube-apiserver": log.arguments}`; read it with `writes`."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "audit.log"
        policy = folder / "audit-policy.yaml"
        rules = [
            {"level": "RequestResponse", "verbs": ["create", "update", "patch", "delete"], "users": [], "resources": []}
        ]
        document = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": rules,
        }
        policy.write_text(yaml.safe_dump(document))
        self.arguments = [f"--audit-policy-file={policy}", f"--audit-log-path={self._log}", "--audit-log-mode=blocking"]

    def writes(self, *, by: str) -> Iterator[Write]:
        """Accepted writes of the service accounts whose name starts so, Leases left out."""
        with self._log.open(encoding="utf-8") as lines:
            for line in lines:
                event = json.loads(line)
                user = event["user"]["username"].rpartition(":")[2]
                what = event.get("objectRef", {})
                accepted = event.get("responseStatus", {}).get("code", 0) < REFUSED
                if user.startswith(by) and accepted and what.get("resource") != "leases":
                    yield Write(
                        user,
                        event["verb"],
                        what["resource"],
                        what.get("namespace", ""),
                        what.get("name", ""),
                        event["requestReceivedTimestamp"],
                        event.get("responseObject", {}),
                    )
