"""How a GatedMLP on a GPU shows itself: the kernels in use, and how the last results are tiled."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree

import pytest

from cuswiglu import GatedMLP
from cuswiglu.api import display
from cuswiglu.runtime import plan
from tests.helpers.calls import K_OUT, K, M, N
from tests.helpers.compiled import GATED
from tests.helpers.device_arrays import device_poisoned, on_device
from tests.helpers.problems import problem_of, weight

pytestmark = pytest.mark.usefixtures("any_evenness")

SVG = "{http://www.w3.org/2000/svg}"
#: Has columns of several widths.
KERNEL = next(k for k in GATED if len(dict(k.widths).get("k", ())) > 1)


def layer_on_gpu():
    shapes = (K, N), (K, N), (N, K_OUT)
    return GatedMLP(*(on_device(weight(*shape, "k")) for shape in shapes))


def drawn(layer):
    """The table's cells as a dictionary, the SVG elements, and the text of their captions."""
    root = ElementTree.fromstring(layer._repr_html_())
    cells = {row[0].text: row[1].text for row in root.iter("tr")}
    return cells, list(root.iter(f"{SVG}svg")), [one.text for one in root.iter("figcaption")]


def planned(m, n):
    """A plan of gate and up; as no memory is touched, small arrays stand for large ones."""
    operands = device_poisoned(1, K), weight(K, 8, "k"), weight(K, 8, "k"), device_poisoned(1, 8)
    x, gate, up, out = operands
    small = problem_of(x, on_device(gate), on_device(up), out)
    return plan.plan_for(dataclasses.replace(small, m=m, n=n), KERNEL.name)


def test_before_a_call_no_kernel_is_in_use(gpu):
    layer = layer_on_gpu()
    assert repr(layer).endswith("on CUDA device 0, variant='auto', no kernel in use yet)")
    assert drawn(layer)[1] == []


def test_kernels_in_use_are_named_with_their_tokens(gpu):
    layer = layer_on_gpu()
    for m in (7, M):
        layer(device_poisoned(m, K))
    entries = [launch.entry for launch in gpu.driver.launches[:2]]  # those of 7 tokens too
    names = " then ".join(entry.removesuffix("_k") for entry in entries)
    assert re.fullmatch(r"[a-z]+_\w+ then plain_\w+", names)
    assert repr(layer).endswith(f"variant='auto', {names} for M = {M}, 7)")
    assert drawn(layer)[0]["in use"] == f"{names} for M = {M}, 7"


def test_many_values_of_m_are_cut_short(gpu):
    layer = layer_on_gpu()
    for m in range(1, 8):
        layer(device_poisoned(m, K))
    assert " for M = 1, 2, 3, 4, ...)" in repr(layer)


def test_a_down_projection_on_the_portable_path_is_named_and_not_drawn(gpu, monkeypatch):
    monkeypatch.setattr("cuswiglu.selection.portable_cost.LAUNCH_US", float("-inf"))
    layer = layer_on_gpu()
    layer(device_poisoned(M, K))
    assert f" then cublas for M = {M})" in repr(layer)
    _, svgs, captions = drawn(layer)
    assert len(svgs) == 1
    assert captions[0].startswith("gate and up, ")


def test_the_last_call_is_drawn(gpu):
    layer = layer_on_gpu()
    layer(device_poisoned(700, K))
    layer(device_poisoned(M, K))
    assert [f"M = {M} in " in caption for caption in drawn(layer)[2]] == [True, True]
    layer(device_poisoned(700, K))
    assert ["M = 700 in " in caption for caption in drawn(layer)[2]] == [True, True]


def test_showing_asks_nothing_of_the_driver(gpu):
    layer = layer_on_gpu()
    layer(device_poisoned(M, K))
    before = len(gpu.driver.calls)
    assert layer._repr_html_()
    assert repr(layer)
    assert len(gpu.driver.calls) == before


@pytest.mark.parametrize(("m", "n"), [(1, 8), (300, 11008), (4096, 29568), (100_000, 200_000)])
def test_a_picture_is_small_whatever_the_problem(gpu, m, n):
    picture = display.tiling(planned(m, n))
    assert len(picture) < 8_000


@pytest.mark.parametrize(("m", "n"), [(300, 1000), (2048, 4864), (512, 11008)])
def test_the_picture_has_the_columns_and_rows_of_the_plan(gpu, m, n):
    found = planned(m, n)
    svg = ElementTree.fromstring(display.tiling(found)).find(f"{SVG}svg")
    width, height = (float(svg.get(side)) for side in ("width", "height"))
    filled = [one for one in svg.iter(f"{SVG}rect") if one.get("fill") != "none"]
    edge = min(found.columns.wide * found.columns.wide_width, n) / n * width
    assert float(filled[0].get("width")) == pytest.approx(edge, abs=0.1)
    assert sum(float(one.get("width")) for one in filled) == pytest.approx(width, abs=0.2)
    assert len(filled) == (2 if found.columns.narrow else 1)
    path = svg.find(f"{SVG}path").get("d")
    columns = [float(x) for x in re.findall(r"M([\d.]+) 0v", path)]
    rows = [float(y) for y in re.findall(r"M0 ([\d.]+)h", path)]
    kernel = found.choice.kernel
    step = kernel.block_m * kernel.cluster_m
    if width / found.columns.count > display.GAP:
        assert len(columns) == found.columns.count - 1
        assert columns[0] == pytest.approx(found.columns.wide_width / n * width, abs=0.1)
    assert rows == pytest.approx([height * y / m for y in range(step, m, step)], abs=0.1)


def test_the_caption_counts_columns_of_both_widths(gpu):
    found = next(one for n in range(1000, 20_000, 200) if (one := planned(2048, n)).columns.narrow)
    columns = found.columns
    assert (
        f"columns of {columns.wide} x {columns.wide_width} + "
        f"{columns.narrow} x {columns.narrow_width}; "
    ) in display.caption(found)
