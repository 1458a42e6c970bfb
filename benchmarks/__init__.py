"""Kept records beside what the project aims at and what the paper claims; not part of the wheel.

    python -m benchmarks --from notebooks/results/paper_h200.json   # targets, claims
    python -m benchmarks.chart --out docs/images                    # README's chart

`targets/` has one module for each suite of `cuswiglu bench`, `paper_claims` the paper's figures.
"""
