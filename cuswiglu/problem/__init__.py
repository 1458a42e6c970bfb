"""Problems: what is to be computed, of which arguments, checked and free of arrays."""

from .operands import WeightArrays, Weights, problems
from .problem import ELEMENT_BYTES, TMA_ALIGNMENT, TMA_EXTENT, Operand, Problem, describe, operand
from .validate import (
    check_apart,
    check_operands,
    check_out,
    check_weights,
    check_x,
)
from .weights import (
    GRANULARITIES,
    PackedWeights,
    check_granularity,
    gate_up,
    intermediate,
    split,
    view_all,
    weight_major,
)

__all__ = [
    "ELEMENT_BYTES",
    "GRANULARITIES",
    "TMA_ALIGNMENT",
    "TMA_EXTENT",
    "Operand",
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
    "operand",
    "problems",
    "split",
    "view_all",
    "weight_major",
]
