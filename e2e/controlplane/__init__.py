"""A real control plane without Docker: `with ControlPlane() as plane: ...`."""

from e2e.controlplane.plane import ControlPlane
from e2e.controlplane.process import ProcessError

__all__ = ["ControlPlane", "ProcessError"]
