"""A real vLLM (CPU build, tiny models) that keeps the planner, the parsers and the fake honest. `make test-engine`."""
