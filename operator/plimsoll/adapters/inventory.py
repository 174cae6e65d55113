"""The inventory file of the operator's owner: read at the start, and again whenever it changes."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from plimsoll.core.plan.inventory import Inventory, InventoryError, read_inventory

log = logging.getLogger("plimsoll.inventory")


def load_inventory(path: Path) -> Inventory:
    """The inventory of a YAML or JSON file. Raises InventoryError, whose message names the file."""
    try:
        return read_inventory(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InventoryError(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InventoryError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except InventoryError as error:
        raise InventoryError(f"{path}: {error}") from None


@dataclass
class InventoryFile:
    """The file as it is now; while it cannot be used, as it was when it could. No path: nothing is known."""

    path: Path | None
    _known: Inventory = field(default_factory=Inventory)
    _version: tuple[int, int, int] | None = None

    @classmethod
    def opened(cls, path: str) -> "InventoryFile":
        """The file, read once. Raises InventoryError: no operator starts with other budgets than its owner's."""
        found = cls(Path(path) if path else None)
        if found.path is not None:
            found._version, found._known = _version(found.path), load_inventory(found.path)
        return found

    def current(self) -> Inventory:
        """The same object as before unless the file has changed."""
        if self.path is None or (version := _version(self.path)) == self._version:
            return self._known
        self._version = version
        try:
            self._known = load_inventory(self.path)
            log.info("read %s anew", self.path)
        except InventoryError as error:
            log.error("%s; the previous inventory is kept", error)  # noqa: TRY400 - an expected fault
        return self._known


def _version(path: Path) -> tuple[int, int, int] | None:
    """What tells one content from the next: a mounted ConfigMap is replaced as a whole."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
