"""Who the engine runs as, and what it may not do. Restricted is the Pod Security level of that name.

The vllm-openai image starts as root by default; since a release between 0.22 and 0.25 it also holds a user for those
who will not have that (uid 2000 in group 0, caches writable for the group). So Restricted is the default where that is
known, with that user named, and nowhere else: an image whose files only root can write would not start.
"""

from dataclasses import dataclass
from typing import Any, Final

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.manifests.container import TMP, TMP_VOLUME
from plimsoll.core.manifests.image import is_known
from plimsoll.core.policy import EngineUser

NON_ROOT_SINCE: Final = 25
_SECCOMP: Final = {"type": "RuntimeDefault"}

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Security:
    """The engine's rights. ``user`` and the groups are None where they are left to the image or the platform."""

    restricted: bool
    user: int | None = None
    group: int | None = None
    volumes_group: int | None = None

    @property
    def pod(self) -> Manifest:
        """The pod's security context."""
        if not self.restricted:
            return {"seccompProfile": _SECCOMP}
        group = {} if self.volumes_group is None else {"fsGroup": self.volumes_group}
        # Changing the owner of every file of a large volume takes longer than loading it.
        change = {"fsGroupChangePolicy": "OnRootMismatch"} if group else {}
        return {"runAsNonRoot": True, "seccompProfile": _SECCOMP, **group, **change}

    @property
    def engine(self) -> Manifest:
        """The engine container's security context."""
        rights: Manifest = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        if not self.restricted:
            return rights
        who = {"runAsUser": self.user, "runAsGroup": self.group}
        return {**rights, "readOnlyRootFilesystem": True, **{k: v for k, v in who.items() if v is not None}}

    @property
    def env(self) -> list[Manifest]:
        """A home that can be written, and a name: torch asks for one, and a bare uid has none in /etc/passwd."""
        if not self.restricted:
            return []
        return [{"name": "HOME", "value": TMP}, {"name": "USER", "value": "vllm"}]

    @property
    def volumes(self) -> list[Manifest]:
        """The writable place a read-only root leaves necessary."""
        return [{"name": TMP_VOLUME, "emptyDir": {}}] if self.restricted else []

    @property
    def mounts(self) -> list[Manifest]:
        """Where it is."""
        return [{"name": TMP_VOLUME, "mountPath": TMP}] if self.restricted else []


def security(spec: VLLMServiceSpec, engine_version: str, user: EngineUser) -> Security:
    """The engine's rights, as asked, else as far as its image is known to work with.

    An image of its own runs as whoever it names; a folder of the node belongs to root.
    """
    ready = is_known(spec.engine.image, engine_version, since=NON_ROOT_SINCE)
    asked, on_node = spec.engine.security, spec.model.source is not None and spec.model.source.host_path is not None
    restricted = ready and not on_node if asked is None else asked == "Restricted"
    volumes_group = user.fs_group if user.fixed_user else None
    if ready and user.fixed_user:
        return Security(restricted, user.run_as_user, user.run_as_group, volumes_group)
    return Security(restricted, volumes_group=volumes_group)
