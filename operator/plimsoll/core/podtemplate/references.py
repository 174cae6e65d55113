"""What a service names of its own namespace and of registries: images, ConfigMaps, claims.

Allowed unless the owner narrows it: none of them leads to a node, a Secret or another namespace, and the API server has
asked the author for the right to create pods there (the chart's ``tenant-policy.yaml``). A Secret is ``volumes.py``'s
matter.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.manifests.image import DEFAULT_IMAGE
from plimsoll.core.podtemplate.words import AT, Object, containers, one_of, owners
from plimsoll.core.policy import Allowed, Names, listed

_IMAGES: Final = "images"
_CONFIG_MAPS: Final = "configMaps"
_CLAIMS: Final = "claims"

Named = tuple[str, Any, str]
"""Where a reference stands, the name, and the key of the policy that decides."""


def engine_refusals(spec: VLLMServiceSpec, allowed: Allowed) -> Iterator[str]:
    """Why the owner's policy refuses what the spec itself names, weights apart."""
    yield from _refused([("spec.engine.image", spec.engine.image or DEFAULT_IMAGE, _IMAGES)], allowed)


def source_references(spec: VLLMServiceSpec, allowed: Allowed) -> Iterator[str]:
    """The same of the model's configuration and weights."""
    model, source = spec.model, spec.model.source
    named: list[Named] = []
    if model.config_ref:
        named.append(("spec.model.configRef.name", model.config_ref.name, _CONFIG_MAPS))
    if source and source.pvc:
        named.append(("spec.model.source.pvc.claimName", source.pvc.claim_name, _CLAIMS))
    if source and source.image:
        named.append(("spec.model.source.image.reference", source.image.reference, _IMAGES))
    yield from _refused(named, allowed)


def template_references(template: Object, allowed: Allowed) -> Iterator[str]:
    """The same of a pod template."""
    spec = template.get("spec", {})
    yield from _refused(_of_volumes(spec), allowed)
    for where, container in containers(spec):
        yield from _refused(_of_container(where, container), allowed)


def _refused(named: Iterable[Named], allowed: Allowed) -> Iterator[str]:
    lists: Mapping[str, Names] = {
        _IMAGES: allowed.images,
        _CONFIG_MAPS: allowed.config_maps,
        _CLAIMS: allowed.claims,
    }
    for where, name, key in named:
        if not (isinstance(name, str) and listed(name, lists[key])) and lists[key] != ("*",):
            yield owners(where, name, one_of(lists[key]), key)


def _of_volumes(spec: Object) -> Iterator[Named]:
    for volume in spec.get("volumes", ()):
        at = f"{AT}.spec.volumes[{volume['name']}]"
        if "configMap" in volume:
            yield f"{at}.configMap.name", volume["configMap"].get("name"), _CONFIG_MAPS
        if "persistentVolumeClaim" in volume:
            yield f"{at}.persistentVolumeClaim.claimName", volume["persistentVolumeClaim"]["claimName"], _CLAIMS
        if "image" in volume:
            yield f"{at}.image.reference", volume["image"]["reference"], _IMAGES
        for source in _sources(volume.get("projected", {})):
            if isinstance(source.get("configMap"), Mapping):
                yield f"{at}.projected.sources[].configMap.name", source["configMap"].get("name"), _CONFIG_MAPS
        yield from _of_ephemeral(at, volume.get("ephemeral", {}))


def _sources(projected: Object) -> Iterator[Object]:
    sources = projected.get("sources")
    yield from (each for each in (sources if isinstance(sources, list) else ()) if isinstance(each, Mapping))


def _of_ephemeral(at: str, ephemeral: Object) -> Iterator[Named]:
    """A claim of the pod's own may be filled from another one, or from a snapshot of one."""
    template = ephemeral.get("volumeClaimTemplate")
    spec = template.get("spec") if isinstance(template, Mapping) else None
    for key in ("dataSource", "dataSourceRef"):
        source = spec.get(key) if isinstance(spec, Mapping) else None
        if source is not None:
            name = source.get("name") if isinstance(source, Mapping) else None
            yield f"{at}.ephemeral.volumeClaimTemplate.spec.{key}.name", name, _CLAIMS


def _of_container(where: str, container: Object) -> Iterator[Named]:
    if "image" in container:
        yield f"{where}.image", container["image"], _IMAGES
    for variable in container.get("env", ()):
        reference = variable.get("valueFrom", {}).get("configMapKeyRef")
        if reference:
            yield f"{where}.env[{variable['name']}].valueFrom.configMapKeyRef.name", reference["name"], _CONFIG_MAPS
    for source in container.get("envFrom", ()):
        if "configMapRef" in source:
            yield f"{where}.envFrom[].configMapRef.name", source["configMapRef"]["name"], _CONFIG_MAPS
