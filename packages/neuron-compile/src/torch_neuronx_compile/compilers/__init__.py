"""Compilers from StableHLO to NEFF, and the choice between them."""
