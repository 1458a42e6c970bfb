"""The TMA boxes that a tile kernel loads and stores for a tile: its own arithmetic, on the host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from build_scripts.variants.tile import TileSource
from tests.helpers.host_sources import compiled, exported, rows_written

SOURCE = """
#include "ablations.cuh"
#include "epilogue/tile_boxes.cuh"
#include "families.cuh"
#include "operands/dense.cuh"

namespace cuswiglu {

// Rows of integers, as far as there is room.
struct Rows {
  int room;
  int* to;
  int count = 0;

  template <class... Values>
  void add(Values... values) {
    if (count < room) ((*to++ = values), ...);
    ++count;
  }
  int found() const { return count <= room ? count : -1; }
};

// Boxes of weights that a CTA loads: weight, offset in the stage, coordinates.
template <class Sizes>
int loads(int m, int n, int width, int box, int k, int pass, int peer, int room, int* to) {
  Rows rows{room, to};
  auto const rank = [=] { return peer; };
  DenseOperands<Sizes>::each_weight(
      TileCoord{m, n, width, box}, pass, 1, 2, rank, [&](int weight, int start, int first) {
        DenseOperands<Sizes>::each_box(first, k, rank, [&](int offset, int inner, int outer) {
          rows.add(weight, start + offset, inner, outer);
        });
      });
  return rows.found();
}

// Boxes that a warpgroup stores: coordinates, row block, first of a thread's accumulators, and how
// many. Packed weights have an accumulator of each weight for two of the result.
template <class Sizes, int kWidth>
int stores(int row, int column, int room, int* to) {
  Rows rows{room, to};
  constexpr int kColumns = Sizes::kPacking > 0 ? 1 : kColumnsPerAccumulator;
  constexpr int kAll = kWidth / kColumns, kBox = Sizes::kOutBoxN / kColumns;
  for (int m = 0; m < Sizes::kWarpgroupM / Sizes::kMmaM; ++m) {
    for (int next = 0; next < kAll; next += kBox) {
      int const first = box_start<kBox, kAll>(next);
      rows.add(column + first * kColumns, row + m * Sizes::kMmaM, m, first, kBox);
    }
  }
  return rows.found();
}

}  // namespace cuswiglu
"""


@dataclass(frozen=True)
class Load:
    """A box of a weight on its way into a stage; `offset` in elements of the stage's weights."""

    operand: int  # 1 and 2: the weights
    offset: int
    inner: int
    outer: int


@dataclass(frozen=True)
class Store:
    """A box of the result, and the accumulators of a thread's row block that it has."""

    column: int
    row: int
    row_block: int
    first: int
    count: int


class HostBoxes:
    """The boxes of variants, compiled in `folder`."""

    def __init__(self, folder: Path, variants: list[TileSource]) -> None:
        source = [SOURCE]
        for variant in variants:
            for layout in variant.layouts:
                source += _functions(variant, layout)
        self._library = compiled(folder, "boxes", "\n".join(source))

    def loads(self, variant, layout, m, n, width, box, k=0, *, step_pass=0, peer=0):
        """What one CTA loads of a step of K for the tile at (m, n), `box` columns at a time."""
        function = getattr(self._library, f"loads_{_name(variant, layout)}")
        arguments = (m, n, width, box, k, step_pass, peer)
        return [Load(*map(int, row)) for row in rows_written(function, arguments, 4, 64)]

    def stores(self, variant, layout, width, row, column):
        """What one warpgroup stores, whose first row and column are these."""
        function = getattr(self._library, f"stores_{_name(variant, layout)}_{width}")
        return [Store(*map(int, row)) for row in rows_written(function, (row, column), 5, 64)]

    def stage_elements(self, variant, layout, box):
        """Elements that the barrier of a stage waits for."""
        return getattr(self._library, f"stage_elements_{_name(variant, layout)}")(box)

    def code_width(self, variant, layout, width):
        """The width of the code path that computes tiles of this width."""
        return getattr(self._library, f"code_width_{_name(variant, layout)}")(width)

    def first_column(self, variant, layout, width):
        """The row of a stage's weights where the products of a tile of that width begin."""
        return getattr(self._library, f"first_column_{_name(variant, layout)}_{width}")()


def _name(variant: TileSource, layout: str) -> str:
    return f"{variant.name}_{layout}".replace("-", "_")


def _functions(variant: TileSource, layout: str) -> list[str]:
    name = _name(variant, layout)
    sizes = f"{name}_sizes"
    lines = [
        f"using {sizes} = cuswiglu::TileSizes<{', '.join(variant.template_arguments(layout))}>;",
        exported(f"loads_{name}", f"cuswiglu::loads<{sizes}>", "m n width box k pass peer"),
        f'extern "C" int code_width_{name}(int width) {{',
        f"  int found = 0;\n  {sizes}::for_width(width, [&](auto of) {{ found = of.value; }});",
        "  return found;\n}",
        f'extern "C" int stage_elements_{name}(int box) {{',
        f"  return cuswiglu::DenseOperands<{sizes}>::stage_elements({{0, 0, box, box}});\n}}",
    ]
    for width in variant.widths(layout):
        lines += [
            exported(f"stores_{name}_{width}", f"cuswiglu::stores<{sizes}, {width}>", "row column"),
            f'extern "C" int first_column_{name}_{width}() {{',
            f"  return {sizes}::WidthSizes<{width}>::kFirstColumn;\n}}",
        ]
    return lines
