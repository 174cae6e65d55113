"""Stands in for torchvision, which this engine does without: importable, and an error when something is called.

Modules of models with vision towers import names from it even when only the text part is loaded.
"""

import enum
import sys
import types

__version__ = "0.28.0"
SUBMODULES = ("io", "ops", "ops.boxes", "transforms", "transforms.functional", "transforms.v2")
SUBMODULES += ("transforms.v2.functional",)


class InterpolationMode(enum.Enum):
    """Looked up by name while modules are imported."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class Absent:
    """Any class or function of the real package."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        raise RuntimeError("torchvision is not installed: this engine reads no images")


def _named(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return InterpolationMode if name == "InterpolationMode" else type(name, (Absent,), {})


def __getattr__(name):
    return _named(name)


for _path in SUBMODULES:
    _module = types.ModuleType(f"{__name__}.{_path}")
    _module.__path__ = []
    _module.__getattr__ = _named
    _module.__spec__ = types.SimpleNamespace(name=_module.__name__, submodule_search_locations=[], loader=None)
    sys.modules[_module.__name__] = _module
    _parent, _, _last = _module.__name__.rpartition(".")
    setattr(sys.modules[_parent], _last, _module)
