"""`python -m e2e.controlplane`: have the programs in the cache, with progress; nothing when they are there."""

from e2e.controlplane import binaries

if __name__ == "__main__":
    binaries.ensure()
