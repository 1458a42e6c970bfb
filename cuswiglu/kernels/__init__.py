"""The compiled kernels: what each can compute, how its work is cut, how long it takes."""
