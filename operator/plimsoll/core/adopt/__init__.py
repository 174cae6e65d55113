"""A running vLLM server → the VLLMService that would replace it, and what a service cannot say. Pure."""
