"""Problems: what is to be computed, of which arguments, checked and free of arrays."""

from .problem import ELEMENT_BYTES, TMA_ALIGNMENT, TMA_EXTENT, Operand, Problem, describe, operand
from .validate import (
    check_alike,
    check_apart,
    check_biases,
    check_gate_up,
    check_out,
    check_packed,
    check_weight,
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
    "check_alike",
    "check_apart",
    "check_biases",
    "check_gate_up",
    "check_granularity",
    "check_out",
    "check_packed",
    "check_weight",
    "check_weights",
    "check_x",
    "describe",
    "gate_up",
    "intermediate",
    "operand",
    "split",
    "view_all",
    "weight_major",
]
