"""Optional kinds for tests: their CRDs, installed and removed at run time, and LeaderWorkerSet's own controller."""

from e2e.optional.crds import definition, install, remove
from e2e.optional.groups import LeaderWorkerSets

__all__ = ["LeaderWorkerSets", "definition", "install", "remove"]
