"""Backends that compute with an array library: the CPU reference and the portable path."""
