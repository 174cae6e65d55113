"""vLLM's own planner on full-size models under a pretended GPU: the table our planner is held to. `make oracle`."""
