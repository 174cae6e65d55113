"""What is wrong with vLLM servers that others wrote: one small rule a fault, each with what follows and what to do."""
