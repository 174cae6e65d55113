"""kubectl as a function."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class KubectlError(RuntimeError):
    """kubectl said no; the message is its stderr."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """One kubectl with one identity. `cache` is where it keeps its discovery, instead of the user's home."""

    program: Path
    kubeconfig: Path
    cache: Path

    def __call__(self, *args: str, stdin: str | None = None) -> str:
        """Run it and return its stdout; raise with its stderr when it fails."""
        done = subprocess.run(
            [str(self.program), *args],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.cache)},
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *args: str) -> dict[str, Any]:
        """`kubectl get ... -o json`, parsed."""
        answer: dict[str, Any] = json.loads(self("get", *args, "-o", "json"))
        return answer

    def apply(self, *objects: dict[str, Any]) -> str:
        """Server-side apply of objects given as plain dicts."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return self("apply", "--server-side", "-f", "-", stdin=json.dumps(listed))

    def make(self, *args: str) -> str:
        """`kubectl create`, which may be said twice: a test's second try finds what the first one made."""
        return self("apply", "--server-side", "-f", "-", stdin=self("create", *args, "--dry-run=client", "-o", "json"))
