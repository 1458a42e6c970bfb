"""Views of arrays: the only room that tells NumPy, CuPy and other libraries apart.

The rooms above it work on `ArrayView`.
"""

from .allocate import CUPY_MAJOR, cupy_module, empty, is_cupy, maker
from .array_view import ArrayView, matrix, new_view, overlap, span
from .imports import import_array, is_own, view
from .streams import on_stream

__all__ = [
    "CUPY_MAJOR",
    "ArrayView",
    "cupy_module",
    "empty",
    "import_array",
    "is_cupy",
    "is_own",
    "maker",
    "matrix",
    "new_view",
    "on_stream",
    "overlap",
    "span",
    "view",
]
