"""A model's configuration from the Hugging Face hub: only when asked, only JSON files, never any code.

``huggingface-hub`` is an optional dependency (extra ``hub``); it brings its own cache, token and offline switch
(``HF_TOKEN``, ``HF_HUB_OFFLINE``, ``HF_ENDPOINT``).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

CONFIG: Final = "config.json"
QUANT_CONFIG: Final = "hf_quant_config.json"
WEIGHTS_INDEX: Final = "model.safetensors.index.json"
MOST_BYTES: Final = 64 * 2**20
TIMEOUT_SECONDS: Final = 15.0
_REPOSITORY: Final = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")


class HubError(Exception):
    """The configuration could not be had from the hub; the message says why and what to do.

    ``unreachable``: another try, or another network, may help; else the answer is final.
    """

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable


@dataclass(frozen=True)
class HubModel:
    """What the hub holds of a model: configurations, and the bytes of its tensors where the index says so."""

    config: Mapping[str, Any]
    quant_config: Mapping[str, Any] | None
    weights_bytes: int | None
    origin: str


def fetch(model_id: str) -> HubModel:
    """The model's configuration. Raises HubError."""
    if not _REPOSITORY.fullmatch(model_id):
        raise HubError(f"{model_id!r} is not a repository of the hub (org/name); give its config.json instead")
    config = _read(model_id, CONFIG)
    if config is None:
        raise HubError(f"{model_id}: its repository on the hub has no {CONFIG}; give one with --model-config")
    return HubModel(config, _read(model_id, QUANT_CONFIG), _weights_bytes(model_id), f"Hugging Face hub, {model_id}")


def _weights_bytes(model_id: str) -> int | None:
    index = _read(model_id, WEIGHTS_INDEX)
    metadata = index.get("metadata") if index else None
    size = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    return int(size) if isinstance(size, int | float) and size > 0 else None


def _read(model_id: str, name: str) -> Mapping[str, Any] | None:
    """A JSON file of the repository, or None when it has none of that name."""
    path = _download(model_id, name)
    if path is None:
        return None
    with open(path, "rb") as file:  # noqa: PTH123 - a path the hub's client gave us
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise HubError(f"{model_id}: {name} is larger than {MOST_BYTES >> 20} MiB; give a config with --model-config")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HubError(f"{model_id}: {name} is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise HubError(f"{model_id}: {name} is a JSON {type(value).__name__}, not an object")
    return value


def _download(model_id: str, name: str) -> str | None:
    try:
        import huggingface_hub  # noqa: PLC0415 - an optional extra, and slow to import
        from huggingface_hub import errors  # noqa: PLC0415 - as above
    except ImportError:
        raise HubError("the hub needs an extra: pip install 'plimsoll-operator[hub]'") from None
    try:
        return str(huggingface_hub.hf_hub_download(model_id, name, etag_timeout=TIMEOUT_SECONDS))
    except errors.GatedRepoError:
        raise HubError(
            f"{model_id} is gated: accept its licence on the hub and set HF_TOKEN to a token that may read it, "
            "or give its config.json with --model-config"
        ) from None
    except errors.RepositoryNotFoundError:
        raise HubError(
            f"{model_id} is not on the hub, or private: check the name, or set HF_TOKEN to a token that may read it"
        ) from None
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError):
        raise HubError(
            f"{model_id}: the hub cannot be reached and {name} is not in the local cache; unset HF_HUB_OFFLINE, check "
            "the network, or give its config.json with --model-config",
            unreachable=True,
        ) from None
    except errors.EntryNotFoundError:
        return None
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise HubError(f"{model_id}: the hub answered with an error: {reason}", unreachable=True) from None
