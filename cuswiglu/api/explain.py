"""Explanation of a choice: why a variant computes a problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import arrays, problem
from ..common.device import DeviceInfo
from ..kernels.manifest import variants
from ..kernels.variant import Estimate
from ..problem import Problem, WeightArrays, Weights, activations
from ..problem.activations import ClampedSwiGLU
from ..runtime import plan
from ..selection import select, tuned
from ..selection.select import Choice


@dataclass(frozen=True)
class Explanation:
    """Choice for a problem, what was measured, and the cost model's view of every kernel.

    `str()` gives a table: how each kernel would cut M, and the share of its tokens that are padding
    and cost as much as others. `obstacles` names the kernels that cannot compute it, and why.

    Attributes
    ----------
    problem : Problem
        Sizes, layouts, dtype and activation.
    device : DeviceInfo or None
        None for the CPU.
    choice : Choice
        `choice.variant` is what runs, `choice.reason` says why.
    measured : Entry or None
        What a tuned table holds for the problem, its `us` in microseconds.
    estimates : list of Estimate
        The cost model's, cheapest first, their `us` in microseconds.
    obstacles : dict of str to str
        Name of a kernel -> the first limit of it that the problem breaks.

    Examples
    --------
    >>> import numpy as np
    >>> from ml_dtypes import bfloat16
    >>> import cuswiglu
    >>> h200 = cuswiglu.DeviceInfo("NVIDIA H200", (9, 0), 132)
    >>> x, weight = np.zeros((8, 896), bfloat16), np.zeros((4864, 896), bfloat16)
    >>> explanation = cuswiglu.explain(x, weight.T, weight.T, device=h200)
    >>> explanation.choice.kernel.family
    'decode'
    >>> explanation.obstacles["interleave_pingpong_128x96_2x1"]
    'the weights must be packed (cuswiglu.pack)'
    """

    problem: Problem
    device: DeviceInfo | None
    choice: Choice
    measured: tuned.Entry | None
    estimates: list[Estimate]
    obstacles: dict[str, str]

    def __str__(self) -> str:
        """Give a table."""
        problem = self.problem
        lines = [
            f"M = {problem.m}, N = {problem.n}, K = {problem.k}, "
            f"{problem.op.value}, weights along {problem.layout}, "
            f"activation {problem.activation}, {problem.x.element}, "
            f"on {self.device.name if self.device else problem.device}",
            f"chosen: {self.choice.variant}"
            + (f" ({self.choice.reason})" if self.choice.reason else "")
            + (f", {self.choice.split}" if self.choice.split else ""),
        ]
        if self.estimates:
            lines.append("  estimate   waves   tiles      M in rows of  padding  kernel")
        lines += [
            f"{e.us:>7.1f} us  {e.waves:>6.2f}  {e.tiles:>6}  {e.rows!s:>16}  "
            f"{e.rows.padding(problem.m):>7.1%}  {e.kernel.name}"
            for e in self.estimates
        ]
        lines += [f"cannot: {name}: {why}" for name, why in self.obstacles.items()]
        return "\n".join(lines)


def explain(
    x: Any,
    w_gate: Any,
    w_up: Any = None,
    *,
    activation: str | ClampedSwiGLU = "silu",
    variant: str = "auto",
    device: DeviceInfo | None = None,
) -> Explanation:
    """Say which kernel `cuswiglu.swiglu` would run for these arrays, and why.

    Parameters
    ----------
    x, w_gate, w_up : array
        As in `cuswiglu.swiglu`; nothing is computed.
    activation : str or ClampedSwiGLU
    variant : str
        As in `cuswiglu.swiglu`.
    device : DeviceInfo, optional
        Another device than the arrays': what would be chosen there. NumPy arrays will do.

    Returns
    -------
    Explanation
        Print it.

    Raises
    ------
    TypeError, ValueError
        As `cuswiglu.swiglu`.

    Examples
    --------
    What an H200 would run for 2048 tokens of Qwen-2.5 3B, asked where there is no GPU:

    >>> import numpy as np
    >>> from ml_dtypes import bfloat16
    >>> import cuswiglu
    >>> h200 = cuswiglu.DeviceInfo("NVIDIA H200", (9, 0), 132)
    >>> x = np.zeros((2048, 2048), bfloat16)
    >>> gate_proj, up_proj = np.zeros((2, 11008, 2048), bfloat16)
    >>> print(cuswiglu.explain(x, gate_proj.T, up_proj.T, device=h200))  # doctest: +ELLIPSIS
    M = 2048, N = 11008, K = 2048, ...
    chosen: dual_pingpong_... (measured: ... us)
      estimate   waves   tiles      M in rows of  padding  kernel
    ...
    """
    x_view, weights = arrays.view("x", x), Weights.view(WeightArrays(w_gate, w_up))
    problem.check_operands(weights)
    problem.check_x(x_view, weights.gate_up[0])
    meant = activations.find(activation)
    (described,) = problem.problems(arrays.matrix(x_view), weights, None, meant)
    if device is None and described.device.kind == "cuda":
        device = plan.device_info(described.device.index)
    select.check_name(variant)
    choice = select.select(described, device, variant)
    if device is None or not device.runs_kernels:
        return Explanation(described, device, choice, None, [], {})
    kernels = [kernel for kernel in variants() if kernel.gated]
    obstacles = {k.name: why for k in kernels if (why := k.obstacle(described)) is not None}
    able = [kernel for kernel in kernels if kernel.name not in obstacles]
    measured = tuned.lookup(described, device.name, select.measured_with(device))
    considered = select.prune(described, able) if variant == "auto" else able
    estimates = select.estimates(described, device, considered)
    return Explanation(described, device, choice, measured, estimates, obstacles)
