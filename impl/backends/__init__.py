"""Decode kernels of the MLA layer."""
