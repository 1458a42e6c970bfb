"""What an entry computes with: layouts of the weights, element types, epilogues."""

from __future__ import annotations

import itertools

#: How a weight lies in memory -> the name CuTe has for it.
MAJORS = {"k": "K", "n": "MN", "p8": "K", "p1": "K"}
#: Of an entry's key, what is behind the layout -> the type of its arrays' elements.
ELEMENTS = {"": "cutlass::bfloat16_t", "_f16": "cutlass::half_t"}
#: Behind that -> whether it has biases and any activation, or only SiLU.
ANY = "_any"
EXTRAS = {"": "false", ANY: "true"}
#: Of packed weights, the columns that gate and up take turns by.
PACKINGS = {"p8": 8, "p1": 1}


def keyed(majors: tuple[str, ...]) -> dict[str, tuple[str, str, str]]:
    """Of a kernel's entries: key -> layout of the weights, C++ type of the elements, extras."""
    return {
        major + element + extras: (major, ELEMENTS[element], EXTRAS[extras])
        for major, element, extras in itertools.product(majors, ELEMENTS, EXTRAS)
    }
