"""Volumes and Secrets: which kinds of volume there are, and every way a pod can read a Secret.

A tenant with rights on VLLMServices alone must not read Secrets through us: the service's own token reference, and
what the operator's owner lists, are all there is.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from plimsoll.core.podtemplate.words import AT, Object, containers, decided, one_of, owners
from plimsoll.core.policy import Allowed, below, listed

_VOLUME_KINDS: Final = (
    "emptyDir", "persistentVolumeClaim", "configMap", "secret", "downwardAPI", "projected", "image", "ephemeral",
    "hostPath", "csi",
)  # fmt: skip
_PROJECTED: Final = ("configMap", "downwardAPI", "secret", "serviceAccountToken")


def volumes_and_secrets(template: Object, allowed: Allowed, token_secret: str | None) -> Iterator[str]:
    """Why the owner's policy refuses a template's volumes and references to Secrets."""
    spec = template.get("spec", {})
    for each in spec.get("imagePullSecrets", ()):
        yield from _secret(f"{AT}.spec.imagePullSecrets[].name", each["name"], allowed, token_secret)
    for volume in spec.get("volumes", ()):
        yield from _volume(f"{AT}.spec.volumes[{volume['name']}]", volume, allowed, token_secret)
    for where, container in containers(spec):
        for at, name in _referenced(where, container):
            yield from _secret(at, name, allowed, token_secret)


def _referenced(where: str, container: Object) -> Iterator[tuple[str, str]]:
    """Secrets in a container's environment, with their paths."""
    for variable in container.get("env", ()):
        reference = variable.get("valueFrom", {}).get("secretKeyRef")
        if reference:
            yield f"{where}.env[{variable['name']}].valueFrom.secretKeyRef.name", reference["name"]
    for source in container.get("envFrom", ()):
        if "secretRef" in source:
            yield f"{where}.envFrom[].secretRef.name", source["secretRef"]["name"]


def _secret(where: str, name: Any, allowed: Allowed, token_secret: str | None) -> Iterator[str]:  # noqa: ANN401 - JSON
    if name == token_secret and name is not None:
        return
    if not isinstance(name, str) or not listed(name, allowed.secrets):
        own = f"{token_secret} (the service's token)" if token_secret else ""
        also = ", ".join(filter(None, (own, *allowed.secrets)))
        yield owners(where, name, also or "no Secret", "secrets")


def _volume(where: str, volume: Object, allowed: Allowed, token_secret: str | None) -> Iterator[str]:
    kinds = [key for key in volume if key != "name"]
    for kind in kinds:
        if kind not in _VOLUME_KINDS:
            yield decided(f"{where}.{kind}", "set", f"nobody: one of {', '.join(_VOLUME_KINDS)} is allowed")
    if len(kinds) != 1:
        yield f"{where}: names {len(kinds)} kinds of volume; exactly one of {', '.join(_VOLUME_KINDS)}"
    if "hostPath" in volume and not below(volume["hostPath"]["path"], allowed.host_paths):
        yield owners(f"{where}.hostPath.path", volume["hostPath"]["path"], one_of(allowed.host_paths), "hostPaths")
    if "secret" in volume:
        yield from _secret(f"{where}.secret.secretName", volume["secret"].get("secretName"), allowed, token_secret)
    if "projected" in volume:
        yield from _projected(where, volume["projected"], allowed, token_secret)
    if "csi" in volume:
        yield from _csi(where, volume["csi"], allowed, token_secret)


def _projected(where: str, projected: Object, allowed: Allowed, token_secret: str | None) -> Iterator[str]:
    """A folder put together from other kinds."""
    sources = projected.get("sources")
    for source in sources if isinstance(sources, list) else ():
        entry = source if isinstance(source, Mapping) else {}
        for kind in entry:
            if kind not in _PROJECTED:
                yield decided(f"{where}.projected.sources[].{kind}", "set", f"nobody: one of {', '.join(_PROJECTED)}")
        if "secret" in entry:
            name = entry["secret"].get("name") if isinstance(entry["secret"], Mapping) else None
            yield from _secret(f"{where}.projected.sources[].secret.name", name, allowed, token_secret)
        if "serviceAccountToken" in entry and not allowed.service_account_tokens:
            where_token = f"{where}.projected.sources[].serviceAccountToken"
            yield owners(where_token, "set", "leave it out", "serviceAccountTokens")


def _csi(where: str, csi: Object, allowed: Allowed, token_secret: str | None) -> Iterator[str]:
    driver = csi.get("driver")
    if not isinstance(driver, str) or not listed(driver, allowed.csi_drivers):
        yield owners(f"{where}.csi.driver", driver, one_of(allowed.csi_drivers), "csiDrivers")
    reference = csi.get("nodePublishSecretRef")
    if reference is not None:
        name = reference.get("name") if isinstance(reference, Mapping) else None
        yield from _secret(f"{where}.csi.nodePublishSecretRef.name", name, allowed, token_secret)
