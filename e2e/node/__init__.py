"""One real node without Docker: kubelet, containerd and runc in namespaces of their own. `make test-node`."""
