"""vLLM servers as they stand in manifests that others wrote: found, and their command lines read. Pure."""
