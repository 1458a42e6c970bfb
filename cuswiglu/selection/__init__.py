"""Which kernel computes a problem: the tuned tables, else the cost model."""
