"""CuPy's elementwise kernels without a GPU: their C statements, computed by NumPy."""

from __future__ import annotations

import math
import re

import numpy as np


class Elementwise:
    """A kernel of the portable path, its C statements read as NumPy's."""

    FUNCTIONS = {  # noqa: RUF012
        "__expf": np.exp,
        "normcdff": np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2, otypes=["f4"]),
        "at_most": np.minimum,
        "at_least": np.maximum,
    }

    def __init__(self, takes, gives, operation, name, preamble=""):
        assert re.findall(r"float (\w+)\(", preamble) in ([], ["at_most", "at_least"])
        *locals_, (_, self._result) = re.findall(r"(?:float (\w+)|y) = (.*?)(?:;|$)", operation)
        self._locals = dict(locals_)
        self._names = re.findall(r"float32 (\w+)", takes)

    def __call__(self, *operands):
        *given, y = operands
        known = self.FUNCTIONS | dict(zip(self._names, given, strict=True))
        with np.errstate(all="ignore"):
            for name, expression in self._locals.items():
                known[name] = self._value(expression, known)
            rounded = known | {"T": lambda value: value.astype(y.dtype)}
            y[...] = self._value(self._result, rounded)

    @staticmethod
    def _value(expression, known):
        return eval(re.sub(r"(\d)f\b", r"\1", expression), {"__builtins__": {}}, known)
