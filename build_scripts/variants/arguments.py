"""Kernel arguments: what every entry point takes, by name and in order.

The one list of them: the build makes entry points' declarations of it, and the library packs what
it launches with by the same list, which the manifest carries.
"""

from __future__ import annotations

#: (name, kind). Kinds are the keys of `TYPES`.
Arguments = tuple[tuple[str, str], ...]

#: Kind of an argument -> its type in C++, where Element is the operands'.
TYPES = {
    "tensor_map": "cute::TmaDescriptor",
    "pointer": "Element*",
    "int32": "int",
    "int64": "long long",
    "float32": "float",
}

_INPUTS: Arguments = (
    ("x", "tensor_map"),
    ("w_first", "tensor_map"),  # gate, packed gate and up, or the only weight
    ("w_second", "tensor_map"),  # up; the only weight again, which is ignored
)
_BIASES: Arguments = (("b_first", "pointer"), ("b_second", "pointer"))
_SIZES: Arguments = (("m", "int32"), ("n", "int32"), ("k", "int32"))
#: Whether weights may be loaded before the work ahead is done; then the general epilogue's.
_LAST: Arguments = (
    ("weights_ahead", "int32"),
    ("activation", "int32"),
    ("linear", "float32"),
    ("cubic", "float32"),
    ("limit", "float32"),
    ("up_constant", "float32"),
)

TILE: Arguments = (
    *_INPUTS,
    ("out", "tensor_map"),
    *_BIASES,
    *_SIZES,
    ("raster_rows", "int32"),
    ("wide", "int32"),
    ("wide_width", "int32"),
    ("narrow_width", "int32"),
    *_LAST,
)
SWAPPED: Arguments = (
    *_INPUTS,
    ("out", "tensor_map"),
    *_BIASES,
    *_SIZES,
    ("raster_rows", "int32"),
    ("columns", "int32"),  # of tokens: the first `wide` have `width`, the others 8 less
    ("wide", "int32"),
    ("width", "int32"),
    ("whole", "int32"),  # tiles of a cluster that are not cut along K
    ("rows", "int32"),  # of a box of weights
    ("stages", "int32"),
    *_LAST,
)
RESIDENT: Arguments = (
    *_INPUTS,
    ("out", "tensor_map"),
    *_BIASES,
    *_SIZES,
    ("groups", "int32"),  # of columns of tiles: a CTA keeps the weights of one
    ("stages", "int32"),
    *_LAST,
)
DECODE: Arguments = (
    *_INPUTS,
    ("out", "pointer"),
    *_BIASES,
    *_SIZES,
    ("out_stride", "int64"),  # elements from token to token
    ("rows", "int32"),  # of the weights, in a tile
    ("stages", "int32"),
    *_LAST,
)


def declarations(arguments: Arguments, kernel: str) -> str:
    """Write the structure of a kernel's arguments, and a macro that declares an entry point.

    Parameters
    ----------
    arguments : Arguments
    kernel : str
        C++ class template of the kernel, of traits and of whether its epilogue is the general one.

    Returns
    -------
    str
        C++: `Arguments<Element>`, whose members are the arguments by name, all but descriptors; and
        CUSWIGLU_ENTRY(NAME, TRAITS, GENERAL, CTAS), an entry point that takes them one by one,
        plain values and never a structure whose size depends on the compiler. It runs the kernel on
        its descriptors, which stay where they are, and on the structure, CTAS to an SM.
    """
    members, parameters = [], []
    for name, kind in arguments:
        of_traits = TYPES[kind].replace("Element", "typename TRAITS::Element")
        if kind == "tensor_map":
            parameters.append(f"__grid_constant__ {of_traits} const {name}")
        else:
            members.append(f"  {TYPES[kind]} {name};")
            parameters.append(f"{of_traits} {name}")
    maps = ", ".join(name for name, kind in arguments if kind == "tensor_map")
    others = ", ".join(name for name, kind in arguments if kind != "tensor_map")
    return "\n".join(
        [
            "template <class Element>",
            "struct Arguments {",
            *members,
            "};",
            "#define CUSWIGLU_ENTRY(NAME, TRAITS, GENERAL, CTAS) \\",
            '  extern "C" __global__ void __launch_bounds__(TRAITS::kThreads, CTAS) \\',
            f"      NAME({', '.join(parameters)}) {{ \\",
            f"    {kernel}<TRAITS, GENERAL>::run({maps}, \\",
            f"        Arguments<typename TRAITS::Element>{{{others}}}); \\",
            "  }",
        ]
    )
