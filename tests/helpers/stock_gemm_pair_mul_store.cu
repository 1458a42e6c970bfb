// Stock CUTLASS GEMMs, built by CollectiveBuilder, with PairMulStore as their epilogue.

// NVRTC has no <type_traits>, and CUTLASS's builders want these two of it.
#include <cuda/std/type_traits>
namespace std {
using cuda::std::is_pointer_v;
using cuda::std::void_t;
}  // namespace std

// An assertion is a function call, and ptxas serialises the WGMMAs around it. NDEBUG in the source
// comes too late for NVRTC, which has defined assert before the first line.
#include <cuda/std/cassert>
#undef assert
#define assert(condition) static_cast<void>(0)

#include <cutlass/cutlass.h>
#include <cutlass/device_kernel.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "epilogue/pair_mul_store.cuh"

using cute::_1;
using cute::_128;
using cute::_2;
using cute::_256;
using cute::_64;
using cute::Shape;

using Element = cutlass::bfloat16_t;
using RowMajor = cutlass::layout::RowMajor;        // X (M, K)
using ColumnMajor = cutlass::layout::ColumnMajor;  // packed weights (K, 2N), contiguous along K

template <class MainloopSchedule, class EpilogueSchedule, class TileShape, class ClusterShape,
          class EpilogueTile, int kGranularity>
struct StockGemm {
  using FusionCallbacks =
      cutlass::epilogue::fusion::Sm90EVT<cuswiglu::PairMulStore<2, EpilogueTile, kGranularity>,
                                         cutlass::epilogue::fusion::Sm90AccFetch>;

  using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape, EpilogueTile,
      float, float, void, RowMajor, 8, void, RowMajor, 8, EpilogueSchedule,
      FusionCallbacks>::CollectiveOp;

  using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, RowMajor, 8, Element,
      ColumnMajor, 8, float, TileShape, ClusterShape,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename CollectiveEpilogue::SharedStorage))>,
      MainloopSchedule>::CollectiveOp;

  using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int>, CollectiveMainloop,
                                                      CollectiveEpilogue>;
};

template <int kGranularity>
using Pingpong = typename StockGemm<cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                                    cutlass::epilogue::TmaWarpSpecialized, Shape<_128, _128, _64>,
                                    Shape<_2, _1, _1>, Shape<_64, _64>, kGranularity>::Kernel;
template <int kGranularity>
using Cooperative =
    typename StockGemm<cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                       cutlass::epilogue::TmaWarpSpecializedCooperative, Shape<_128, _256, _64>,
                       Shape<_1, _2, _1>, Shape<_128, _64>, kGranularity>::Kernel;

// Types of their own, for short mangled names. Both schedules and both granularities occur.
struct pingpong_groups_of_8 : Pingpong<8> {};
struct cooperative_even_odd : Cooperative<1> {};

template __global__ void cutlass::device_kernel<pingpong_groups_of_8>(
    __grid_constant__ pingpong_groups_of_8::Params const);
template __global__ void cutlass::device_kernel<cooperative_even_odd>(
    __grid_constant__ cooperative_even_odd::Params const);

// The node without a collective: one warpgroup takes 64 x 256 accumulators from memory ([M, 2N],
// FP32, row-major) and stores 64 x 128 of Y through a descriptor that is a kernel argument.
template <int kGranularity>
CUTLASS_DEVICE void store_from_memory(cute::TmaDescriptor const& tma_out, float const* accumulators,
                                      int columns) {
  using Node = cuswiglu::PairMulStore<2, Shape<_64, _64>, kGranularity, cuswiglu::SiLU, Element,
                                      cute::TmaDescriptor const*>;
  using TileShape = Shape<_64, _256, _64>;
  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, TileShape>()));
  __shared__ typename Node::SharedStorage storage;

  auto rows = cute::make_tensor(
      cute::make_gmem_ptr(accumulators + int64_t(blockIdx.x) * 64 * columns + blockIdx.y * 256),
      Shape<_64, _256>{}, cute::make_stride(columns, _1{}));
  TiledMma mma;
  auto mine = mma.get_slice(threadIdx.x).partition_C(rows);
  auto accum = cute::make_fragment_like<float>(mine.layout());
  cute::copy(mine, accum);

  typename Node::Params const params{&tma_out};
  Node const node(params, storage);
  int count = 0;
  node.store_tile(accum, mma, blockIdx.x * 64, blockIdx.y * 128, threadIdx.x,
                  [] { __syncthreads(); }, count);
  Node::drain(threadIdx.x);
}

extern "C" __global__ void __launch_bounds__(128)
    outside_even_odd(__grid_constant__ cute::TmaDescriptor const tma_out, float const* accumulators,
                     int columns) {
  store_from_memory<1>(tma_out, accumulators, columns);
}

extern "C" __global__ void __launch_bounds__(128)
    outside_groups_of_8(__grid_constant__ cute::TmaDescriptor const tma_out,
                        float const* accumulators, int columns) {
  store_from_memory<8>(tma_out, accumulators, columns);
}
