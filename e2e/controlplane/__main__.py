"""`python -m e2e.controlplane [helm] [node]`: have the programs in the cache; nothing when they are there."""

import sys

from e2e.controlplane import binaries
from e2e.controlplane.targets import CONTROL_PLANE, HELM, NODE

GROUPS = {"helm": HELM, "node": NODE}

if __name__ == "__main__":
    for group in (CONTROL_PLANE, *(GROUPS[name] for name in sys.argv[1:])):
        binaries.ensure_group(group)
