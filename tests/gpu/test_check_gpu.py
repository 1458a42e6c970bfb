"""`cuswiglu check` on the GPU: every kernel reaches the marks, and the report can be read."""

from __future__ import annotations

import numpy as np
import pytest

from cuswiglu.bench.cells import Cell
from cuswiglu.check import compare, contenders, distributions, report, run
from cuswiglu.cli import main
from cuswiglu.kernels.manifest import variants


def test_every_kernel_reaches_every_mark(cupy, tmp_path):
    path = tmp_path / "check.json"
    status = main(["check", "--quick", "--models", "0.5b", "--json", str(path)])
    found = report.load(path)
    assert found.missed() == []
    assert status == 0
    names = {"auto", "portable", *(kernel.name for kernel in variants() if kernel.gated)}
    for row in found.cases:
        assert names <= set(row.outcomes)
        assert all(outcome.measured is not None for outcome in row.outcomes.values())


@pytest.mark.parametrize("case", distributions.random_cases([Cell("odd", 584, 1000, 77)]), ids=str)
def test_what_is_compared_on_the_gpu_is_what_is_compared_on_the_host(cupy, case):
    inputs = distributions.draw(cupy, case, 0)
    expected = compare.reference(cupy, *inputs)
    (ours,) = (one for one in contenders.find("cublas").contenders if one.name == "portable")
    out = ours.compute(*inputs)
    on_host = tuple(cupy.asnumpy(array) for array in inputs)
    there = compare.compare(cupy, out, expected, inputs)
    here = compare.compare(np, cupy.asnumpy(out), compare.reference(np, *on_host), on_host)
    assert there.worst.error == pytest.approx(here.worst.error, rel=1e-6)
    assert sum(there.ulps) == sum(here.ulps)
    assert np.abs(np.subtract(there.ulps, here.ulps)).sum() <= 4  # sums of FP64 in another order


def test_a_wrong_kernel_is_found(cupy):
    def wrong(x, gate, up):
        out = contenders.find("cublas").contenders[0].compute(x, gate, up)
        out.view(cupy.uint16)[5, 7] = 0x4040  # 3 in BF16
        return out

    case = distributions.random_cases([Cell("odd", 584, 1000, 77)])[0]
    row = run.check(cupy, case, [contenders.Contender("wrong", wrong)], 0)
    worst = row.outcomes["wrong"].measured.worst
    assert (worst.row, worst.column, worst.found) == (5, 7, 3)
    assert any("away from zero" in text for text in row.missed())
