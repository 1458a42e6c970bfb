"""Compiles the kernels of kernels_cu/ to cubins and writes their manifest."""
