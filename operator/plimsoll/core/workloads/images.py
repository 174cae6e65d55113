"""What an image's reference says: whether it is vLLM's, which release is in it, whether it stays the same."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_RELEASE: Final = re.compile(r"v?(0)\.(\d{1,2})(?:\.(\d{1,2}))?(?![\d.]*\d{3})")
_WITHIN: Final = re.compile(r"vllm[-_]?v?(0)\.(\d{1,2})(?:\.(\d{1,2}))?", re.IGNORECASE)
_MOVING: Final = frozenset(
    {"", "latest", "nightly", "dev", "devel", "main", "master", "edge", "stable", "snapshot", "canary", "rolling"}
)
_MOVING_PARTS: Final = re.compile(r"(^|[-_.])(latest|nightly)([-_.]|$)", re.IGNORECASE)
_PINNED_NIGHTLY: Final = re.compile(r"nightly-[0-9a-f]{7,40}", re.IGNORECASE)
_PLACEHOLDER: Final = re.compile(r"replace|change[-_]?me|your[-_]|todo|<.*>", re.IGNORECASE)
_TEMPLATE: Final = re.compile(r"\$\{|\$\(|\{\{|^\$")
# Their tags count something else than vLLM's releases.
_OTHERS: Final = ("lmcache/", "llm-d/", "rhaiis/", "ai-dynamo/", "kserve/", "kaito")
_NOT_SERVERS: Final = re.compile(r"router|sidecar|proxy|operator|controller|export|bench|webui|gateway|-sim\b|-ui\b")
CPU: Final = re.compile(r"(^|[-_./:])cpu([-_./:]|$)", re.IGNORECASE)
_DEVICE: Final = re.compile(r"cpu|rocm|xpu|gaudi|habana|hpu|neuron|tpu|ascend|npu|openvino|gfx\d+|strix", re.IGNORECASE)
Release = tuple[int, int, int]


@dataclass(frozen=True)
class Image:
    """A container image as it is written."""

    text: str

    @property
    def is_template(self) -> bool:
        """Whether something fills it in before it is applied."""
        return _TEMPLATE.search(self.text) is not None

    @property
    def digest(self) -> str:
        """The part after ``@``."""
        return self.text.partition("@")[2]

    @property
    def name(self) -> str:
        """Registry, repository and name without tag and digest."""
        whole = self.text.partition("@")[0]
        head, colon, tag = whole.rpartition(":")
        return head if colon and "/" not in tag else whole

    @property
    def tag(self) -> str | None:
        """The tag; None when there is none."""
        whole = self.text.partition("@")[0]
        _, colon, tag = whole.rpartition(":")
        return tag if colon and "/" not in tag else None

    @property
    def release(self) -> Release | None:
        """The vLLM release that the tag names."""
        within = _WITHIN.search(self.text)
        counts = "vllm" in self.name.lower() and not any(other in self.name.lower() for other in _OTHERS)
        match = within or (_RELEASE.match(self.tag) if counts and self.tag else None)
        return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None

    @property
    def moves(self) -> str | None:
        """Why the same reference may be another image tomorrow; None when it stays, or cannot be told."""
        if self.digest or self.is_template:
            return None
        tag = self.tag
        if tag is None:
            return "none, which means latest"
        if _PLACEHOLDER.search(tag):
            return f"{tag}, a placeholder"
        if tag.lower() in _MOVING or (_MOVING_PARTS.search(tag) and not _PINNED_NIGHTLY.search(tag)):
            return tag or "empty"
        return None

    @property
    def is_vllm(self) -> bool:
        """Whether the name says that a vLLM server is in it."""
        text = self.text.partition("@")[0].lower()
        return ("vllm" in text or "rhaiis" in text) and not self.is_not_a_server

    @property
    def is_not_a_server(self) -> bool:
        """Whether the name says that it is something beside engines."""
        return _NOT_SERVERS.search(self.name.lower()) is not None

    @property
    def device(self) -> str | None:
        """What it runs on where its name says something else than CUDA."""
        match = _DEVICE.search(self.text)
        return match[0].lower() if match else "xpu" if "intel/" in self.name else None

    @property
    def for_cpu(self) -> bool:
        """Whether it is a build for CPUs."""
        return CPU.search(self.text) is not None

    @property
    def for_cuda(self) -> bool:
        """Whether it is vLLM's own CUDA image, or a mirror of it."""
        return self.name.split("/")[-1] == "vllm-openai" and self.device is None


def image_of(container: Mapping[str, Any]) -> Image | None:
    """The image of a container; None where none is written."""
    written = container.get("image")
    return Image(written.strip()) if isinstance(written, str) and written.strip() else None
