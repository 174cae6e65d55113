"""docs/install.md as a program: the shell blocks of a section, run as they stand."""

import re
import subprocess
import textwrap
from collections.abc import Mapping
from typing import Final

from e2e.node.images.application import CHECKOUT
from e2e.node.rig import Rig

PAGE: Final = CHECKOUT / "docs" / "install.md"
# Not followed: the checkout is there already, and a watch never ends.
_LEFT_OUT: Final = {"git pull\n": "", " -w\n": "\n"}
_BLOCK: Final = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def blocks(section: str, language: str = "sh") -> list[str]:
    """The fenced blocks of a section, without the indentation of a list they may stand in."""
    parts = re.split(r"^## (.*)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    return [textwrap.dedent(code) for _, kind, code in _BLOCK.findall(texts[section]) if kind == language]


def follow(rig: Rig, section: str, *, only: slice = slice(None), replace: Mapping[str, str] | None = None) -> None:
    """Run a section's commands from the folder of the checkout; what stands in CAPITALS has to be replaced."""
    for code in blocks(section)[only]:
        for old, new in {**_LEFT_OUT, **(replace or {})}.items():
            code = code.replace(old, new)  # noqa: PLW2901 - the block as it is run
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=CHECKOUT,
            env=rig.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{PAGE.name}, {section}:\n{code}\n{done.stdout}{done.stderr}"
