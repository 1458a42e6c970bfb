"""Problems: what is to be computed, of which arguments, checked and free of arrays."""

from .operands import WeightArrays, Weights, problems
from .problem import (
    TMA_ALIGNMENT,
    TMA_EXTENT,
    EntryPoint,
    Matrix,
    Op,
    Problem,
    describe,
    weight_matrix,
)
from .validate import (
    check_apart,
    check_operands,
    check_out,
    check_weights,
    check_x,
)
from .weights import (
    GRANULARITIES,
    Layout,
    PackedWeights,
    check_granularity,
    gate_up,
    intermediate,
    split,
    view_all,
    weight_layout,
)

__all__ = [
    "GRANULARITIES",
    "TMA_ALIGNMENT",
    "TMA_EXTENT",
    "EntryPoint",
    "Layout",
    "Matrix",
    "Op",
    "PackedWeights",
    "Problem",
    "WeightArrays",
    "Weights",
    "check_apart",
    "check_granularity",
    "check_operands",
    "check_out",
    "check_weights",
    "check_x",
    "describe",
    "gate_up",
    "intermediate",
    "problems",
    "split",
    "view_all",
    "weight_layout",
    "weight_matrix",
]
