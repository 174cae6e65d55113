"""Container images without a registry or a builder: files of this machine's Python environment in tar layers."""
