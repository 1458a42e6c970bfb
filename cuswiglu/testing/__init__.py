"""Measuring and comparing: clocks on the GPU, and FP64 references."""
