"""`cuswiglu check` on the GPU: every kernel reaches the targets, and the report can be read."""

from __future__ import annotations

import numpy as np
import pytest

from cuswiglu.bench.cells import Cell
from cuswiglu.bench.contenders import Contender, Runner
from cuswiglu.check import contenders, distributions, report, run
from cuswiglu.cli import main
from cuswiglu.kernels.manifest import variants
from cuswiglu.kernels.resident import ResidentVariant
from cuswiglu.testing import numerics


def test_every_kernel_reaches_every_target(cupy, tmp_path):
    path = tmp_path / "check.json"
    status = main(["check", "--quick", "--models", "0.5b", "--json", str(path)])
    found = report.load(path)
    assert found.missed() == []
    assert status == 0
    able = [kernel for kernel in variants() if not isinstance(kernel, ResidentVariant)]  # K is long
    names = {"auto", "portable", *(kernel.name for kernel in able if kernel.gated)}
    for row in found.cases:
        assert names <= set(row.outcomes)
        assert all(outcome.measured is not None for outcome in row.outcomes.values())


@pytest.mark.parametrize("case", distributions.random_cases([Cell("odd", 584, 1000, 77)]), ids=str)
def test_what_is_compared_on_the_gpu_is_what_is_compared_on_the_host(cupy, case):
    inputs = distributions.draw(cupy, case, 0)
    arrays = inputs.x, *inputs.pairs[0]
    expected = numerics.swiglu_reference(cupy, *arrays)
    (ours,) = (one for one in contenders.find("cublas").contenders if one.name == "portable")
    out = ours.make(inputs).output()
    on_host = (cupy.asnumpy(array) for array in arrays)
    there = numerics.compare(cupy, out, expected)
    here = numerics.compare(np, cupy.asnumpy(out), numerics.swiglu_reference(np, *on_host))
    assert there.worst.error == pytest.approx(here.worst.error, rel=1e-6)
    assert sum(there.ulps) == sum(here.ulps)
    assert np.abs(np.subtract(there.ulps, here.ulps)).sum() <= 4  # sums of FP64 in another order


def test_a_wrong_kernel_is_found(cupy):
    def wrong(inputs):
        def output():
            out = contenders.find("cublas").contenders[0].make(inputs).output()
            out.view(cupy.uint16)[5, 7] = 0x4040  # 3 in BF16
            return out

        return Runner(output, lambda number: None)

    case = distributions.random_cases([Cell("odd", 584, 1000, 77)])[0]
    row = run.check(cupy, case, [Contender("wrong", wrong)], 0)
    worst = row.outcomes["wrong"].measured.worst
    assert (worst.row, worst.column, worst.found) == (5, 7, 3)
    assert any("away from zero" in text for text in row.missed())
