"""What a kernel does for a tile: the TMA boxes it loads and stores, compiled for the host.

Only what surrounds them is made up: descriptors are numbers, a copy is noted, and an accumulator's
value says which one it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from build_scripts.variants.elements import MAJORS, PACKINGS
from build_scripts.variants.tile import FAMILIES, Instance
from tests.helpers.host_sources import KERNELS, compiled, extract, rows_written

WRAPPER = """
#include <cstdint>
#include <vector>

#define CUTLASS_DEVICE inline
#define CUTLASS_PRAGMA_UNROLL

static struct { unsigned x = 0; } threadIdx;
static std::vector<int> noted;  // the integers of box after box
static std::vector<int> values;  // of the accumulators that were written to shared memory last

static int take(int width, int room, int* boxes) {
  int const count = int(noted.size()) / width;
  if (count > room) return -1;
  for (int i = 0; i < count * width; ++i) boxes[i] = noted[i];
  noted.clear();
  return count;
}

namespace cutlass {
struct bfloat16_t { uint16_t bits; };
template <class T, int n>
struct Array {
  T items[n];
  T& operator[](int i) { return items[i]; }
  T operator[](int i) const { return items[i]; }
};
template <class, class From, int n>
struct NumericArrayConverter {
  Array<From, n> operator()(Array<From, n> const& array) const { return array; }
};
}

namespace cute {
template <int n> struct Int { static constexpr int value = n; };
template <class...> struct Shape {};
template <int i, int... extents>
constexpr int size(Shape<Int<extents>...>) {
  constexpr int all[] = {extents...};
  return all[i];
}

struct TmaDescriptor { int number; };
static unsigned peer;
inline unsigned block_rank_in_cluster() { return peer; }
inline bool elect_one_sync() { return true; }
inline void tma_store_fence() {}
template <int> void tma_store_wait() {}
inline void tma_store_arrive() {}

// A store: the first column and row of the result, and which accumulators it has; they follow
// each other, or the last of the four is -1.
struct SM90_TMA_STORE_2D {
  template <class Element>
  static void copy(TmaDescriptor const*, Element const*, int inner, int outer) {
    int last = values.back();
    for (unsigned i = 0; i < values.size(); ++i) {
      if (values[i] != values[0] + int(i)) last = -1;
    }
    for (int value : {inner, outer, values[0], last}) noted.push_back(value);
  }
};

// A warpgroup's registers, and whatever is in shared memory.
template <int n> struct FragmentShape {};
template <int n>
struct Fragment {
  float items[n];
  float& operator()(int i, int, int) { return items[i]; }
};
struct SharedTensor {};
struct ThreadCopy {
  template <int n>
  int retile_S(Fragment<n> const& fragment) const {
    values.assign(fragment.items, fragment.items + n);
    return 0;
  }
  int partition_D(SharedTensor) const { return 0; }
};
struct TiledCopy {
  ThreadCopy get_slice(int) const { return {}; }
};
struct SM90_U32x4_STSM_N {};
template <class, class> struct Copy_Atom {};
template <class Atom, class Mma> TiledCopy make_tiled_copy_C(Atom, Mma) { return {}; }
template <class Mma, int rows, int columns>
FragmentShape<rows * columns / 128> partition_shape_C(Mma, Shape<Int<rows>, Int<columns>>) {
  return {};
}
template <class, int n> Fragment<n> make_tensor(FragmentShape<n>) { return {}; }
template <class T> T* make_smem_ptr(T* pointer) { return pointer; }
template <class T, class Layout> SharedTensor make_tensor(T*, Layout) { return {}; }
inline SharedTensor as_position_independent_swizzle_tensor(SharedTensor tensor) { return tensor; }
inline void copy(TiledCopy, int, int) {}
}

namespace cuswiglu {
using cute::Int;
using cute::Shape;
enum class Major { K, MN };
%(enumerations)s

template <Family kFamily_, Schedule kSchedule_, int kBlockM_, int kBlockN_, int kClusterM_,
          int kStages_, int kOutStages_, Major kMajorB_, int kPacking_, int kNarrowing_,
          int kNarrowest_>
struct Traits {
  using Element = cutlass::bfloat16_t;
%(constants)s
  struct TiledMmaOut {};
  struct SmemLayoutOut {};
%(width)s
  struct SharedStorage {
    Element a[kStages * kBlockM * kBlockK];
    Element b[kStages * kStageElementsB];
    uint64_t full[kStages];
  };
};

%(tile_coord)s
%(input_maps)s

template <class Traits>
struct Mainloop {
  using Element = typename Traits::Element;
  using SharedStorage = typename Traits::SharedStorage;
  static inline SharedStorage smem;

  // Descriptor, whether all CTAs of the cluster get it, stage whose barrier is told, first element
  // of X's or the weights' shared memory, coordinates.
  template <bool kMulticast>
  static void load_box(cute::TmaDescriptor const& tma, uint64_t* full, Element* to, int inner,
                       int outer) {
    int const offset = int(to - (tma.number == 0 ? smem.a : smem.b));
    for (int value : {tma.number, int(kMulticast), int(full - smem.full), offset, inner, outer}) {
      noted.push_back(value);
    }
  }
%(weight_boxes)s
%(each_weight)s
%(load_weights)s
%(stage_bytes)s
%(load_x)s
};

template <class Traits>
struct Kernel {
%(for_width)s
};

template <class Traits>
struct Epilogue {
  using Element = typename Traits::Element;
  static void sync_warpgroup(int) {}
%(store_box)s
%(store)s
};

template <int Stages, class EpilogueTile, int Granularity, class ElementOut>
struct PairMulStore {
%(pair_constants)s
  struct Callbacks {
    ElementOut const* smem;
    cute::TmaDescriptor const* descriptor;
    int row;
    int column;

    void visit(cutlass::Array<float, kFragment> const& fragment, int, int, int,
               cutlass::Array<float, kFragment> const&) {
      values.assign(fragment.items, fragment.items + kFragment);
    }
    void postreduce(int, int, int, bool) {}
%(tma_store)s
  };
  template <class TiledMma>
  Callbacks callbacks(TiledMma, int row, int column, int) const {
    static ElementOut smem[Stages * kRows * kColumns];
    static cute::TmaDescriptor const descriptor{3};
    return {smem, &descriptor, row, column};
  }
%(store_tile)s
};

// Of a warpgroup: element i of row block m is 1000 m + i.
template <int kElements, int kRowBlocks>
struct Accumulators {
  using layout_type = Shape<Int<kElements>, Int<kRowBlocks>, Int<1>>;
  float operator()(int i, int m, int) const { return float(1000 * m + i); }
};

// The width that the code has which computes a tile of `width`.
template <class Traits>
int code_width(int width) {
  int found = 0;
  Kernel<Traits>::template for_width<Traits::kBlockN>(width, [&](auto of) { found = of.value; });
  return found;
}

template <class Traits>
int loads(int m, int n, int width, int box, int k, int pass, int stage, int peer, int room,
          int* boxes) {
  using Loop = Mainloop<Traits>;
  cute::TmaDescriptor const x{0}, first{1}, second{2};
  InputMaps const maps{x, first, second};
  cute::peer = unsigned(peer);
  TileCoord const tile{m, n, width, box};
  Loop::load_weights(Loop::smem, stage, tile, k, pass, maps);
  Loop::load_x(Loop::smem, stage, tile, k, maps);
  return take(6, room, boxes);
}

template <class Traits, int kWidth>
int stores(int row, int column, int room, int* boxes) {
  cute::TmaDescriptor const out{3};
  int stored = 0;
  if constexpr (Traits::kPacking > 0) {
    using Tile = Shape<Int<Traits::kMmaM>, Int<2 * Traits::kOutBoxN>>;
    PairMulStore<Traits::kOutStages, Tile, Traits::kPacking, typename Traits::Element> const node{};
    Accumulators<Traits::template Width<kWidth>::kColumns / 2,
                 Traits::kWarpgroupM / Traits::kMmaM> const accum;
    node.store_tile(accum, 0, row, column, 0, [] {}, stored);
  } else {
    static typename Traits::Element smem[Traits::kOutStages * Traits::kMmaM * Traits::kOutBoxN];
    Epilogue<Traits>::template store<kWidth>([](int v, int m) { return float(1000 * m + v); }, smem,
                                             0, stored, row, column, out);
  }
  return take(4, room, boxes);
}
}
"""


def _constants(file: str, names: str) -> str:
    """The constants of a class, of plain types, whose names match."""
    source = (KERNELS / file).read_text()
    pattern = rf"^  static constexpr (?:int|bool|Family|Schedule|Major) (?:{names}) =[^;]*;"
    found = re.findall(pattern, source, re.MULTILINE)
    assert found, f"{file} no longer has constants like {names}: adapt tests/host_boxes.py"
    return "\n".join(found)


def _parts() -> dict[str, str]:
    traits = (KERNELS / "impls/sm90_tile_traits.cuh").read_text()
    width = extract("impls/sm90_tile_traits.cuh", r"template <int kWidth>\n +struct Width \{")
    return {
        "enumerations": "\n".join(re.findall(r"^enum class .*;$", traits, re.MULTILINE)),
        "constants": _constants("impls/sm90_tile_traits.cuh", r"\w+"),
        "width": re.sub(r"^ +(?:using|static_assert)[^;]*;$", "", width, flags=re.MULTILINE),
        "tile_coord": extract("mainloop/tile.cuh", r"struct TileCoord \{"),
        "input_maps": extract("mainloop/tile.cuh", r"struct InputMaps \{"),
        "for_width": extract("impls/sm90_tile.cuh", r"template <int kWidth, class F>"),
        "weight_boxes": extract("mainloop/tile.cuh", r"template <class Box>"),
        "each_weight": extract("mainloop/tile.cuh", r"template <class Load>"),
        "load_weights": extract("mainloop/tile.cuh", r"CUTLASS_DEVICE static void load_weights\("),
        "stage_bytes": extract("mainloop/tile.cuh", r"CUTLASS_DEVICE static int stage_bytes\("),
        "load_x": extract("mainloop/tile.cuh", r"CUTLASS_DEVICE static void load_x\("),
        "store_box": extract("epilogue/tile_store.cuh", r"CUTLASS_DEVICE static void store_box\("),
        "store": extract("epilogue/tile_store.cuh", r"template <int kWidth, class Combine>"),
        "pair_constants": _constants(
            "epilogue/pair_mul_store.cuh", "kRows|kColumns|kThreads|kFragment|kEvenOdd|kBoxColumns"
        ),
        "tma_store": extract("epilogue/pair_mul_store.cuh", r"CUTLASS_DEVICE void tma_store\("),
        "store_tile": extract(
            "epilogue/pair_mul_store.cuh",
            r"template <class Accumulators, class TiledMma, class Sync>",
        ),
    }


@dataclass(frozen=True)
class Load:
    """A box on its way into a stage; `offset` in elements of X's or the weights' shared memory."""

    operand: int  # 0: X, 1 and 2: weights
    multicast: int
    stage: int
    offset: int
    inner: int
    outer: int


@dataclass(frozen=True)
class Store:
    """A box of the result, and the accumulators of a thread that it has: 1000 m + i, see above."""

    column: int
    row: int
    first: int
    last: int


class HostBoxes:
    """The boxes of instances, compiled in `folder`."""

    def __init__(self, folder: Path, instances: list[Instance]) -> None:
        source = [WRAPPER % _parts()]
        for instance in instances:
            for major in instance.majors:
                source += _entries(instance, major)
        self._library = compiled(folder, "boxes", "\n".join(source))

    def loads(self, instance, major, m, n, width, box, k=0, *, step_pass=0, stage=0, peer=0):
        """What one CTA loads of a step of K for the tile at (m, n), `box` columns at a time."""
        function = getattr(self._library, f"loads_{instance.entry(major)}")
        arguments = (m, n, width, box, k, step_pass, stage, peer)
        return [Load(*map(int, row)) for row in rows_written(function, arguments, 6, 64)]

    def stores(self, instance, major, width, row, column):
        """What one warpgroup stores, whose first row and column are these."""
        function = getattr(self._library, f"stores_{instance.entry(major)}_{width}")
        return [Store(*map(int, row)) for row in rows_written(function, (row, column), 4, 64)]

    def stage_bytes(self, instance, major, box):
        """What the barrier of a stage waits for."""
        return getattr(self._library, f"stage_bytes_{instance.entry(major)}")(box)

    def code_width(self, instance, major, width):
        """The width of the code path that computes tiles of this width."""
        return getattr(self._library, f"code_width_{instance.entry(major)}")(width)

    def first_column(self, instance, major, width):
        """The row of a stage's weights where the products of a tile of that width begin."""
        return getattr(self._library, f"first_column_{instance.entry(major)}_{width}")()


def _entries(instance: Instance, major: str) -> list[str]:
    entry = instance.entry(major)
    arguments = [
        f"cuswiglu::Family::{FAMILIES[instance.family]}",
        f"cuswiglu::Schedule::{instance.schedule.capitalize()}",
        *(instance.block_m, instance.block_n, instance.cluster_m),
        *(instance.stages, instance.out_stages),
        f"cuswiglu::Major::{MAJORS[major]}",
        *(PACKINGS.get(major, 0), instance.narrowing(major), instance.widths(major)[-1]),
    ]
    traits = f"{entry}_traits"
    lines = [
        f"using {traits} = cuswiglu::Traits<{', '.join(map(str, arguments))}>;",
        _function(
            f"loads_{entry}", f"cuswiglu::loads<{traits}>", "m n width box k pass stage peer"
        ),
        f'extern "C" int code_width_{entry}(int width) {{',
        f"  return cuswiglu::code_width<{traits}>(width);\n}}",
        f'extern "C" int stage_bytes_{entry}(int box) {{',
        f"  return cuswiglu::Mainloop<{traits}>::stage_bytes({{0, 0, box, box}});\n}}",
    ]
    for width in instance.widths(major):
        name = f"{entry}_{width}"
        lines += [
            _function(f"stores_{name}", f"cuswiglu::stores<{traits}, {width}>", "row column"),
            f'extern "C" int first_column_{name}() {{',
            f"  return {traits}::Width<{width}>::kFirstColumn;\n}}",
        ]
    return lines


def _function(name: str, called: str, arguments: str) -> str:
    names = [*arguments.split(), "room"]
    declared = ", ".join(f"int {argument}" for argument in names)
    return (
        f'extern "C" int {name}({declared}, int* boxes) {{\n'
        f"  return {called}({', '.join(names)}, boxes);\n}}"
    )
