"""From start to end of a pod: how long it loads, what it takes of its host, how it drains. Figures only."""
