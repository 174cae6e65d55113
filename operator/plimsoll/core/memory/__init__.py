"""Device memory of one engine rank: what weights, activations, graphs and the driver take, and what is left for KV."""
