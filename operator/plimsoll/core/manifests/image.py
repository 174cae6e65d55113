"""The engine's image: which one, what is known of it, and how it is started."""

import re
from collections.abc import Mapping
from typing import Any, Final

from plimsoll.core.manifests.container import CONTAINER
from plimsoll.facts.engines import EngineVersion

DEFAULT_IMAGE: Final = "vllm/vllm-openai"
_KNOWN: Final = re.compile(r"(^|/)vllm-openai(:|@|$)")
_SERVES_SINCE: Final = 19
"""The entry point is ``vllm serve`` in 0.19.1; releases of 2025 started the API server's module, which takes no model's
name as its first argument."""


def engine_image(asked: str | None, version: str) -> str:
    """The user's image, or the release's own."""
    return asked or f"{DEFAULT_IMAGE}:v{version}"


def repository(image: str) -> str:
    """An image's repository, without tag and digest; Docker's own registry goes without saying."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}".removeprefix("docker.io/")


def image_of(template: Mapping[str, Any]) -> str:
    """The image of the engine in a pod template."""
    return next(str(each["image"]) for each in template["spec"]["containers"] if each["name"] == CONTAINER)


def command(asked: str | None, version: str) -> list[str]:
    """What starts the engine, where the image's own entry point is not known to; else empty."""
    return [] if is_known(asked, version, since=_SERVES_SINCE) else ["vllm", "serve"]


def is_known(asked: str | None, version: str, *, since: int) -> bool:
    """Whether it is vLLM's own image, or a mirror of it, of release 0.``since`` or later."""
    if asked is not None and _KNOWN.search(asked) is None:
        return False
    try:
        return EngineVersion.parse(version).at_least(since)
    except ValueError:
        return False
