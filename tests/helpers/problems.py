"""Problems made from arrays, as `cuswiglu.swiglu` makes them."""

from __future__ import annotations

import dataclasses

from cuswiglu import arrays
from cuswiglu.problem import PackedWeights, describe, gate_up
from tests.helpers.host_arrays import poisoned


def weight(k, n, major, offset=0, pad=0):
    """Rows padded by `pad` elements, `offset` elements behind an aligned address."""
    rows, columns = (n, k) if major == "k" else (k, n)
    array = poisoned(rows, columns + pad, offset=offset)[:, :columns]
    return array.T if major == "k" else array


def problem_of(x, gate, up, out):
    views = {"x": x, "w_gate": gate, "w_up": up, "out": out}
    x, gate, up, out = (arrays.view(name, array) for name, array in views.items())
    return describe(arrays.matrix(x), (gate, up), arrays.matrix(out))


def plain_problem(m=64, n=96, k=128, major="k", **changed):
    """As `problem`, of one weight."""
    operands = {"x": poisoned(m, k), "weight": weight(k, n, major), "out": poisoned(m, n)}
    x, only, out = (arrays.view(name, a) for name, a in (operands | changed).items())
    return describe(arrays.matrix(x), (only,), arrays.matrix(out))


def packed_problem(m=64, n=96, k=128, granularity=8, **changed):
    """As `problem`, of packed weights."""
    operands = {"x": poisoned(m, k), "packed": poisoned(2 * n, k), "out": poisoned(m, n)}
    x, packed, out = (operands | changed).values()
    weights = gate_up(PackedWeights(packed, granularity), None, None)
    views = [arrays.matrix(arrays.view(name, array)) for name, array in (("x", x), ("out", out))]
    return describe(views[0], weights, views[1])


def of_elements(asked, x, weight=None, out=None):
    """The problem as if x, the weights and the result were of these element types."""
    change = dataclasses.replace
    return change(
        asked,
        x=change(asked.x, element=x),
        weights=tuple(change(one, element=weight or x) for one in asked.weights),
        out=change(asked.out, element=out or x),
    )


def problem_for(kernel):
    """A problem that a kernel can compute."""
    major = kernel.layouts[0]
    if major.startswith("p"):
        return packed_problem(granularity=int(major[1:]))
    return problem(major=major) if kernel.gated else plain_problem(k=320, major=major)


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
