"""How a GatedMLP on the CPU shows itself: a line, and a table. On a GPU: test_tiling_picture.py."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

import cuswiglu
from cuswiglu import GatedMLP
from tests.helpers.calls import K_OUT, K, M, N
from tests.helpers.host_arrays import draw
from tests.helpers.problems import weight


def test_on_the_cpu_the_backend_is_numpy_and_there_is_no_picture():
    x, *weights = draw(M, K, N, K_OUT)
    layer = GatedMLP(*weights)
    layer(x)
    assert repr(layer) == (
        f"GatedMLP(K={K}, N={N}, K_out={K_OUT}, K-major, on the CPU, variant='auto', backend numpy)"
    )
    shown = ElementTree.fromstring(layer._repr_html_())
    assert {row[0].text: row[1].text for row in shown.iter("tr")} == {
        "K": str(K),
        "N": str(N),
        "K_out": str(K_OUT),
        "layout": "K-major",
        "dtype": "bfloat16",
        "activation": "silu",
        "biases": "none",
        "device": "the CPU",
        "variant": "auto",
        "in use": "backend numpy",
    }
    assert "svg" not in layer._repr_html_()


@pytest.mark.parametrize(
    ("majors", "words"),
    [
        ("nnn", "N-major"),
        ("kkn", "gate K-major, up K-major, down N-major"),
        ("knk", "gate K-major, up N-major, down K-major"),
    ],
)
def test_layouts_are_named_one_by_one_where_they_differ(majors, words):
    shapes = (K, N), (K, N), (N, K_OUT)
    weights = (weight(*shape, major) for shape, major in zip(shapes, majors, strict=True))
    assert f", {words}, on the CPU" in repr(GatedMLP(*weights))


def test_packed_weights_are_named():
    _, gate, up, down = draw(M, K, N, K_OUT)
    layer = GatedMLP(cuswiglu.pack(gate, up), None, down)
    assert ", gate and up packed by 8, down K-major, on" in repr(layer)
