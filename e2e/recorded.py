"""What earlier operators wrote (e2e/data/upgrade), read back."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

FOLDER: Final = Path(__file__).parent / "data" / "upgrade"


@dataclass(frozen=True)
class Recording:
    """One file: services as applied, other objects they need, and the operator's writes in their order."""

    revision: str
    services: list[dict[str, Any]]
    others: list[dict[str, Any]]
    writes: list[dict[str, Any]]
    spec_fields: frozenset[str]

    @classmethod
    def read(cls, path: Path) -> Self:
        kept = json.loads(gzip.decompress(path.read_bytes()))
        return cls(kept["revision"], kept["services"], kept["others"], kept["writes"], frozenset(kept["specFields"]))

    def manifests(self, kind: str) -> list[dict[str, Any]]:
        """The manifests of a kind."""
        return [write["manifest"] for write in self.writes if write["manifest"]["kind"] == kind]

    def renamed_uids(self, uids: dict[str, str]) -> list[dict[str, Any]]:
        """The writes, with the uids that the services have now (`uids` by service name)."""
        text = json.dumps(self.writes)
        for service in self.services:
            text = text.replace(service["recordedUid"], uids[service["metadata"]["name"]])
        writes: list[dict[str, Any]] = json.loads(text)
        return writes


def recordings() -> list[Path]:
    """All files there are."""
    return sorted(FOLDER.glob("*.json.gz"))
