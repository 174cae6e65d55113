"""Figures, printed as one JSON line each; never asserted in tests. `make bench`."""
