"""Correct implementations that differ from impl, which every clause must let pass."""
