"""What goes on top of Python: the operator with what it depends on, and the fake engine."""

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from e2e.node.images.layer import Layer, Source, Text, tree
from e2e.node.images.runtime import shared_libraries

CHECKOUT: Final = Path(__file__).absolute().parents[3]
DISTRIBUTION: Final = "plimsoll-operator"
FOLDER: Final = "/opt/plimsoll"
_NO_BYTECODE: Final = frozenset({"__pycache__"})


def operator_layer() -> Layer:
    """The operator and its dependencies, as the lock file put them into our own environment, hashes checked."""
    files: dict[str, Source] = {}
    for distribution in dependencies():
        files.update(_installed(distribution))
    files.update(tree(CHECKOUT / "operator" / "plimsoll", f"{FOLDER}/plimsoll", leave_out=_NO_BYTECODE))
    files.update(shared_libraries(source for source in files.values() if isinstance(source, Path)))
    return files


def engine_layer() -> Layer:
    """The fake vLLM."""
    files: dict[str, Source] = {f"{FOLDER}/e2e/__init__.py": CHECKOUT / "e2e" / "__init__.py"}
    files.update(tree(CHECKOUT / "e2e" / "fleet", f"{FOLDER}/e2e/fleet", leave_out=_NO_BYTECODE))
    # The package itself brings the fake kubelet, with libraries that no engine needs.
    files[f"{FOLDER}/e2e/fleet/__init__.py"] = Text("")
    return files


def dependencies() -> list[importlib.metadata.Distribution]:
    """The operator's distribution and all it needs at run time, without extras and development groups."""
    found: dict[str, importlib.metadata.Distribution] = {}
    pending = [Requirement(DISTRIBUTION)]
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        distribution = found.setdefault(name, importlib.metadata.distribution(name))
        for text in distribution.requires or ():
            needed = Requirement(text)
            if canonicalize_name(needed.name) not in found and _applies(needed, requirement.extras):
                pending.append(needed)
    return [found[name] for name in sorted(found)]


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


def _installed(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Its files inside site-packages; scripts and the link of an editable install stay out."""
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and file.suffix != ".pth" and source.is_file():
            yield f"{FOLDER}/{file}", source
