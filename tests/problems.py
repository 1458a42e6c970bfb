"""Problems made from arrays, as `cuswiglu.swiglu` makes them."""

from __future__ import annotations

from host_arrays import poisoned

from cuswiglu import arrays
from cuswiglu.problem import swiglu_problem


def weight(k, n, major, offset=0, pad=0):
    """Rows padded by `pad` elements, `offset` elements behind an aligned address."""
    rows, columns = (n, k) if major == "k" else (k, n)
    array = poisoned(rows, columns + pad, offset=offset)[:, :columns]
    return array.T if major == "k" else array


def problem_of(x, gate, up, out):
    views = {"x": x, "w_gate": gate, "w_up": up, "out": out}
    x, gate, up, out = (arrays.view(name, array) for name, array in views.items())
    return swiglu_problem(arrays.matrix(x), gate, up, arrays.matrix(out))


def problem(m=64, n=96, k=128, major="k", **changed):
    """A problem on aligned, contiguous memory, but for the operands given in `changed`."""
    operands = {
        "x": poisoned(m, k),
        "gate": weight(k, n, major),
        "up": weight(k, n, major),
        "out": poisoned(m, n),
    }
    return problem_of(**operands | changed)


#: Operand -> a problem that TMA cannot express because of it, by address and by row stride.
UNALIGNED = {
    "x": lambda offset=1: problem(x=poisoned(64, 128, offset=offset)),
    "w_gate": lambda offset=1: problem(gate=weight(128, 96, "k", offset=offset)),
    "w_up": lambda offset=1: problem(up=weight(128, 96, "k", offset=offset)),
    "out": lambda offset=1: problem(out=poisoned(64, 96, offset=offset)),
}
BADLY_PADDED = {
    "x": lambda: problem(x=poisoned(64, 132)[:, :128]),
    "w_gate": lambda: problem(gate=weight(128, 96, "k", pad=4)),
    "w_up": lambda: problem(up=weight(128, 96, "k", pad=4)),
    "out": lambda: problem(out=poisoned(64, 100)[:, :96]),
}
