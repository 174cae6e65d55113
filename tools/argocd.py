"""The keys of Argo CD's ConfigMap that teach it about VLLMServices, made from the Lua files beside it."""

from pathlib import Path
from typing import Any, Final

import yaml

from plimsoll.api import names

ROOT: Final = Path(__file__).resolve().parent.parent
SCRIPTS: Final = ROOT / "deploy" / "argocd" / "resource_customizations" / names.GROUP / names.KIND
_KIND: Final = f"{names.GROUP}_{names.KIND}"


class _Literal(yaml.SafeDumper):
    """Writes text of several lines as such, so that a script in YAML reads like a script."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Literal.add_representer(str, _text)


def config_map() -> str:
    """``argocd-cm`` with our keys only: server-side apply leaves everybody else's alone."""
    labels = {names.LABEL_NAME: "argocd-cm", names.LABEL_PART_OF: "argocd"}
    return _dump(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "argocd-cm", "namespace": "argocd", "labels": labels},
            "data": {
                f"resource.customizations.health.{_KIND}": (SCRIPTS / "health.lua").read_text(encoding="utf-8"),
                f"resource.customizations.actions.{_KIND}": _dump(_actions()),
            },
        }
    )


def _actions() -> dict[str, Any]:
    folder = SCRIPTS / "actions"
    definitions = [
        {"name": script.parent.name, "action.lua": script.read_text(encoding="utf-8")}
        for script in sorted(folder.glob("*/action.lua"))
    ]
    return {"discovery.lua": (folder / "discovery.lua").read_text(encoding="utf-8"), "definitions": definitions}


def _dump(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Literal, sort_keys=False, width=120)
