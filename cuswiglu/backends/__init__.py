"""Backends that compute through an array library: the CPU reference and the portable path."""
