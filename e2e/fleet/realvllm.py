"""A real vLLM as a pod's container, where somebody has one: the image `vllm-openai-cpu`, with the pod's own argv.

`FLEET_REAL_VLLM` is the command that stands for `vllm`, as a JSON list (`e2e/engine`). Two things a container's own
network and file system would do are done here: the server listens on the pod's address alone, and caches that the
pod mounts are left to the engine's defaults.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from e2e.fleet.process import Launch
from e2e.fleet.vllm import serve_args

COMMAND: Final = "FLEET_REAL_VLLM"
_IMAGE: Final = re.compile(r"(^|/)vllm-openai-cpu(:|@|$)")
_MOUNTED: Final = ("/cache", "/weights")


def wanted(launch: Launch) -> bool:
    """Whether the container is to be a real engine, and there is one."""
    return bool(_IMAGE.search(launch.image)) and COMMAND in os.environ


def launch_of(launch: Launch) -> Launch:
    """The container as a process of this machine."""
    vllm = tuple(json.loads(os.environ[COMMAND]))
    argv = serve_args(launch.command, launch.args)
    return replace(launch, command=(*vllm, "serve"), args=(*argv, "--host", launch.address), env=_outside(launch.env))


def _outside(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not value.startswith(_MOUNTED)}
