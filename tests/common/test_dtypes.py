"""Element types: what each library calls them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from cuswiglu.common.dtypes import ELEMENTS

BY_ELEMENT = pytest.mark.parametrize("element", ELEMENTS.values(), ids=ELEMENTS)


@BY_ELEMENT
def test_a_type_is_known_by_the_name_that_numpy_has_and_has_its_size(element):
    assert ELEMENTS[element.dtype.name] is element
    assert element.bits == 8 * element.dtype.itemsize


@BY_ELEMENT
def test_a_tensor_map_is_told_the_drivers_number(element):
    cuda = pytest.importorskip("cuda.bindings.driver", reason="the driver's enumerations")
    name = f"CU_TENSOR_MAP_DATA_TYPE_{element.name.upper()}"
    assert element.tma == getattr(cuda.CUtensorMapDataType, name)


@BY_ELEMENT
def test_cublas_is_told_the_runtimes_number(element):
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="the runtime's enumerations")
    name = {"bfloat16": "CUDA_R_16BF", "float16": "CUDA_R_16F"}[element.name]
    assert element.cublas == getattr(runtime.cudaDataType, name)


def test_dlpack_tells_fp16_by_the_code_of_floats():
    """NumPy's own capsule says so; BF16 is the type that it does not know."""
    from cuswiglu.arrays import dlpack

    assert dlpack.read(np.zeros(1, np.float16), None).dtype == "float16"
    assert ELEMENTS["float16"].dlpack == 2  # kDLFloat
    assert ELEMENTS["bfloat16"].dlpack == 4  # kDLBfloat


def test_the_table_needs_no_library_but_numpy_and_ml_dtypes():
    """The build reads it in an environment that has no others."""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('cupy', 'cuda', 'jax', 'torch')));"
        "import cuswiglu.common.dtypes"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
