"""What users call, for CuPy and NumPy arrays."""
