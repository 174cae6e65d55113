"""GPU nodes and pods where no GPU and no kubelet can be. See :class:`Fleet`."""

from e2e.fleet.fleet import Fleet
from e2e.fleet.nodes import NodeSpec, parse_nodes

__all__ = ["Fleet", "NodeSpec", "parse_nodes"]
