"""Which rights were used: the API server's audit log, boiled down to what authorization let through or refused.

Only when the variable names a folder; every control plane that stops leaves a file there (see `e2e/verbs.py`).
"""

import json
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

VARIABLE: Final = "PLIMSOLL_E2E_VERBS"
WATCHED_GROUP: Final = "system:serviceaccounts:plimsoll-system"
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": [WATCHED_GROUP]}, {"level": "None"}],
}
_ALLOWED_BY: Final = re.compile(r'of (?:Cluster)?Role "([^"]+)" to ')
CREATED: Final = 201


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """A verb on a resource (`apps/deployments`, `pods/log`), and the role that allows it; none when it was refused."""

    role: str
    resource: str
    verb: str


def arguments(workdir: Path) -> list[str]:
    """Flags for the API server; none unless somebody wants to know."""
    if not os.environ.get(VARIABLE):
        return []
    policy = workdir / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump(_POLICY))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={_log(workdir)}"]


def leave_summary(workdir: Path) -> None:
    """Write what was used into the folder, if there is a log."""
    if _log(workdir).exists():
        folder = Path(os.environ[VARIABLE])
        uses = sorted({use for line in _log(workdir).read_text().splitlines() for use in _uses(json.loads(line))})
        (folder / f"{secrets.token_hex(8)}.json").write_text(json.dumps([astuple(use) for use in uses]))


def summaries(folder: Path) -> set[Use]:
    """What all control planes of a run have left."""
    return {Use(*row) for file in folder.glob("*.json") for row in json.loads(file.read_text())}


def _uses(event: dict[str, Any]) -> Iterator[Use]:
    reference, notes = event.get("objectRef"), event.get("annotations", {})
    decision = notes.get("authorization.k8s.io/decision")
    if not reference or not decision:
        return
    allowed_by = _ALLOWED_BY.search(notes.get("authorization.k8s.io/reason", ""))
    role = allowed_by[1] if decision == "allow" and allowed_by else ""
    parts = (reference.get("apiGroup"), reference["resource"], reference.get("subresource"))
    resource = "/".join(part for part in parts if part)
    yield Use(role, resource, event["verb"])
    # Server-side apply of something new is also asked for `create`, inside the server.
    if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == CREATED:
        yield Use(role, resource, "create")


def _log(workdir: Path) -> Path:
    return workdir / "audit.jsonl"
