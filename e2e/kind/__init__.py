"""The suite of `e2e/node` on a kind cluster, for whoever has Docker: `make e2e-kind`."""
