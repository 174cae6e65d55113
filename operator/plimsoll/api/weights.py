"""``spec.model.source``: where the weights come from, in the contract's words."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from plimsoll.api.model import APIModel, Rule

OBJECT_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
OBJECT_NAME_LENGTH: Final = 253
IMAGE_REFERENCE: Final = r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$"
_FOLDER: Final = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"
_NODE_FOLDER: Final = r"^(/[A-Za-z0-9_@:+-][A-Za-z0-9._@:+-]*)+$"

ObjectName = Annotated[str, Field(pattern=OBJECT_NAME, max_length=OBJECT_NAME_LENGTH)]
ImageReference = Annotated[str, Field(pattern=IMAGE_REFERENCE, max_length=512)]
Folder = Annotated[str, Field(pattern=_FOLDER, max_length=512)]


class SecretKey(APIModel):
    """One key of a Secret in the service's namespace. The operator never reads it: the pod does."""

    name: ObjectName = Field(description="Name of the Secret.", examples=["hf-token"])
    key: str = Field(
        default="token", description="Key in the Secret's data.", pattern=r"^[-._a-zA-Z0-9]+$", max_length=253
    )


class FromHub(APIModel):
    """What fetching from the Hugging Face hub needs."""

    token_secret: SecretKey | None = Field(
        default=None, description="The hub token for a gated or private model; the engine gets it as HF_TOKEN."
    )
    revision: str | None = Field(
        default=None,
        description="Branch, tag or commit of the repository. A commit keeps every replica on the same files.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
        max_length=256,
        examples=["main"],
    )


class HubSource(FromHub):
    """The hub, fetched anew by every pod."""


def _fetches_or_names_a_folder(source: "ClaimSource") -> bool:
    return source.path is None or (source.token_secret is None and source.revision is None)


class ClaimSource(FromHub):
    """A PersistentVolumeClaim in the service's namespace."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.path) || (!has(self.tokenSecret) && !has(self.revision))",
            message="path: weights that lie in a folder are not fetched: leave tokenSecret and revision out",
            holds=_fetches_or_names_a_folder,
            field="path",
        ),
    )

    claim_name: ObjectName = Field(description="Name of the claim.", examples=["models"])
    path: Folder | None = Field(
        default=None,
        description=(
            "Folder of the weights within the volume: nothing is fetched, the engine runs offline. Left out: the "
            "volume keeps what is fetched from the hub, so that only the first start fetches."
        ),
        examples=["llama-3.1-8b"],
    )
    read_only: bool = Field(
        default=False,
        description=(
            "Mount it read-only (a ReadOnlyMany claim must be); then the compile cache is not kept on it, and path is "
            "needed unless the hub's files are on it already."
        ),
    )


class NodeFolderSource(FromHub):
    """A folder of the node that keeps what is fetched from the hub."""

    path: str = Field(
        description="Absolute path on the node, below one that the operator's owner allows (docs/pods.md).",
        pattern=_NODE_FOLDER,
        max_length=512,
        examples=["/mnt/nvme/models"],
    )


class ImageSource(APIModel):
    """An image whose files are the weights, mounted as a volume (Kubernetes 1.33 or later)."""

    reference: ImageReference = Field(
        description="The image; a digest keeps every replica on the same files.",
        examples=["registry.example.com/models/llama-3.1-8b:1"],
    )
    path: Folder | None = Field(default=None, description="Folder of the weights in the image. Left out: its root.")
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="When to pull it. Left out: Kubernetes' own default."
    )


def _names_one(source: "WeightsSource") -> bool:
    named = (source.hub, source.pvc, source.host_path, source.image)
    return sum(each is not None for each in named) == 1


class WeightsSource(APIModel):
    """Where the weights come from: exactly one of the four."""

    rules: ClassVar = (
        Rule(
            cel="[has(self.hub), has(self.pvc), has(self.hostPath), has(self.image)].filter(named, named).size() == 1",
            message="name exactly one of hub, pvc, hostPath and image",
            holds=_names_one,
        ),
    )

    hub: HubSource | None = Field(default=None, description="The Hugging Face hub, fetched anew by every pod.")
    pvc: ClaimSource | None = Field(
        default=None, description="A PersistentVolumeClaim: a folder of weights, or a cache of the hub."
    )
    host_path: NodeFolderSource | None = Field(
        default=None, description="A folder of the node as a cache of the hub, where the operator's owner allows it."
    )
    image: ImageSource | None = Field(default=None, description="An image mounted as a volume.")
