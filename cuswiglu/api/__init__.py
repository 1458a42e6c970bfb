"""Functions and classes that users call, for CuPy and NumPy arrays."""
