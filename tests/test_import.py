"""`import cuswiglu` touches no CUDA, and needs NumPy and ml_dtypes alone.

Each test is a process of its own.
"""

from __future__ import annotations

import textwrap

import pytest

from build_scripts.variants import ALL_VARIANTS
from tests.helpers.processes import printed

OPTIONAL = ["cupy", "cuda", "torch", "jax", "safetensors", "gguf", "click", "rich", "build_scripts"]
BLOCKED = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL}))\n"  # None: ImportError
ARRAYS = """
import ml_dtypes, numpy as np
shapes = (2, 4), (4, 6), (4, 6), (6, 3)
x, gate, up, down = (np.ones(shape, ml_dtypes.bfloat16) for shape in shapes)

class Tensor:  # of a library that can be imported, on a CUDA device
    def __dlpack_device__(self):
        return (2, 0)
    def __dlpack__(self, **options):
        raise AssertionError("nothing is to be exported")
"""


def raised(statement):
    """The error of a statement in a process where only NumPy and ml_dtypes can be imported."""
    return printed(
        BLOCKED
        + ARRAYS
        + textwrap.dedent(f"""
        import cuswiglu
        from cuswiglu import arrays
        from cuswiglu.common.device import Device
        from cuswiglu.runtime import driver
        try:
            {statement}
        except Exception as error:
            print(type(error).__name__, error)
        """)
    )


def test_import_loads_no_cuda_and_no_optional_package():
    code = f"""
    import sys
    before = set(sys.modules)  # site-packages may bring namespaces: cuda
    import cuswiglu
    new = {{name.split(".")[0] for name in set(sys.modules) - before}}
    print(new & set({OPTIONAL}))
    """
    assert printed(code) == "set()"


def test_import_maps_no_cuda_library():
    code = """
    import cuswiglu
    libraries = ("libcuda", "libcudart", "libnvrtc", "libnvJitLink", "libcublas")
    mapped = open("/proc/self/maps").read()
    print([name for name in libraries if name in mapped])
    """
    assert printed(code) == "[]"


def test_host_arrays_need_no_optional_package():
    code = BLOCKED + ARRAYS + "import cuswiglu\nprint(float(cuswiglu.mlp(x, gate, up, down)[0, 0]))"
    # 4 silu(4) = 15.71 is 15.6875 in BF16; six of them are 94.125, which is 94 in BF16.
    assert float(printed(code)) == 94


def test_variants_are_listed_without_a_gpu_or_cupy():
    code = BLOCKED + "import cuswiglu\nprint(len(cuswiglu.variants()))"
    assert int(printed(code)) == len(ALL_VARIANTS)


def test_the_public_names_are_there():
    code = """
    import cuswiglu
    print(sorted(cuswiglu.__all__), all(hasattr(cuswiglu, name) for name in cuswiglu.__all__))
    """
    expected = (
        "CapturedMLP ClampedSwiGLU DeviceInfo Explanation GatedMLP KernelsUnavailableError "
        "PackedWeights Variant __version__ asarray explain mlp pack swiglu variants"
    )
    assert printed(code) == f"{sorted(expected.split())} True"


def test_a_device_array_without_cupy_says_what_to_install():
    message = raised("cuswiglu.swiglu(Tensor(), gate, up)")
    assert message.startswith("ImportError arrays on a CUDA device need CuPy")
    assert "pip install 'cuswiglu[cuda12]' or 'cuswiglu[cuda13]'" in message


def test_a_new_device_array_without_cupy_says_what_to_install():
    message = raised("arrays.empty((2, 3), Device('cuda'))")
    assert message.startswith("ImportError arrays on a CUDA device need CuPy")


def test_the_driver_without_cuda_python_says_what_to_install():
    message = raised("driver.driver()")
    assert message.startswith("ImportError the kernels need cuda-python")
    assert "pip install 'cuswiglu[cuda12]' or 'cuswiglu[cuda13]'" in message


def test_jax_functions_without_jax_say_what_to_install():
    message = raised("cuswiglu.jax.swiglu")
    assert message.startswith("ImportError cuswiglu.jax needs JAX")
    assert "pip install 'cuswiglu[jax]'" in message


def test_a_list_is_still_a_type_error_without_cupy():
    message = raised("cuswiglu.swiglu([[1.0]], gate, up)")
    assert message.startswith("TypeError x must be a NumPy or CuPy array")


@pytest.mark.parametrize("name", ["swiglu", "GatedMLP", "asarray"])
def test_without_ml_dtypes_it_says_what_to_install(name):
    code = f"""
    import sys
    sys.modules["ml_dtypes"] = None  # ImportError
    import cuswiglu
    try:
        cuswiglu.{name}
    except ImportError as error:
        print(error)
    """
    message = "cuswiglu needs ml_dtypes, which is not installed here: pip install ml_dtypes"
    assert printed(code) == message
