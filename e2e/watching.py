"""Every state an object goes through, as a watch shows them: what polling would miss."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any, Self

from e2e.controlplane.kubectl import Kubectl
from e2e.eventually import eventually


class Watching:
    """`with Watching(kubectl, "vllm", "svc", "-n", namespace) as seen: …; seen.states()`."""

    def __init__(self, kubectl: Kubectl, *args: str) -> None:
        self._out = tempfile.TemporaryFile(mode="w+", encoding="utf-8")  # noqa: SIM115 - closed in __exit__
        command = [str(kubectl.program), "get", *args, "--watch", "-o", "json"]
        env = {**os.environ, "KUBECONFIG": str(kubectl.kubeconfig), "KUBECACHEDIR": str(kubectl.cache)}
        self._process = subprocess.Popen(command, stdout=self._out, env=env)

    def __enter__(self) -> Self:
        eventually(self.states)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._out.close()

    def states(self) -> list[dict[str, Any]]:
        """All complete states so far, oldest first."""
        self._out.seek(0)
        return [*_documents(self._out.read())]


def _documents(text: str) -> Iterator[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    while (start := text.find("{", at)) >= 0:
        try:
            document, at = decoder.raw_decode(text, start)
        except json.JSONDecodeError:
            return  # the rest is still being written
        yield document
