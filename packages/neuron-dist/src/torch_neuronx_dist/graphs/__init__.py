"""Collectives inside compiled graphs: what they become in StableHLO, and what the emulator runs for them."""
