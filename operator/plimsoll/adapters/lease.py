"""One coordination.k8s.io Lease, read and written with the version it was read at."""

from dataclasses import dataclass
from typing import Any

from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.ports import LEASES, NotFoundError, Object
from plimsoll.api import names
from plimsoll.core.election import Term


@dataclass(frozen=True)
class KubeLease:
    """LeaseStore port over one Lease."""

    cluster: KubeCluster
    namespace: str
    name: str

    async def read(self) -> tuple[Term | None, str]:
        """What the Lease says and its version; no Term when it does not exist."""
        try:
            found = await self.cluster.get(LEASES, self.namespace, self.name)
        except NotFoundError:
            return None, ""
        return _term(found.get("spec") or {}), str(found["metadata"]["resourceVersion"])

    async def write(self, term: Term, version: str) -> None:
        """Create it (no version) or replace just that version; ConflictError when somebody was faster."""
        manifest = self._manifest(term, version)
        if version:
            await self.cluster.replace(LEASES, manifest)
        else:
            await self.cluster.create(LEASES, manifest)

    def _manifest(self, term: Term, version: str) -> dict[str, Any]:
        meta: dict[str, Any] = {"name": self.name, "namespace": self.namespace, "labels": _LABELS}
        if version:
            meta["resourceVersion"] = version
        spec = {
            "holderIdentity": term.holder,
            "leaseDurationSeconds": term.lease_seconds,
            "acquireTime": term.acquired,
            "renewTime": term.renewed,
            "leaseTransitions": term.transitions,
        }
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": spec}


_LABELS = {names.LABEL_NAME: "plimsoll", names.LABEL_PART_OF: "plimsoll"}


def _term(spec: Object) -> Term:
    return Term(
        holder=str(spec.get("holderIdentity") or ""),
        lease_seconds=int(spec.get("leaseDurationSeconds") or 0),
        acquired=str(spec.get("acquireTime") or ""),
        renewed=str(spec.get("renewTime") or ""),
        transitions=int(spec.get("leaseTransitions") or 0),
    )
