// Families of tile kernels: what a kernel does with its weights.
//   kWeights  weight tiles side by side in a stage; one WGMMA covers both of two
//   kPasses   walks over K for one tile of the result
//   kGates    weights that the result is of: gate and up, or one
//   kPacked   gate and up are one matrix, by turns of columns, and a visitor-tree node stores
//   kActivateBetween, kActivateBehind  with two passes and SiLU alone: whether gate is activated in
//             registers before up's products, or behind them; with a general epilogue always behind
// ablations.cuh has two more, which exist to be timed.
#pragma once

namespace cuswiglu {

// Both products in one pass over K.
struct Dual {
  static constexpr int kWeights = 2, kPasses = 1, kGates = 2;
  static constexpr bool kPacked = false;
};

// The paper's Kernel-1: all of gate's K, the activation, then all of up's K.
struct Sync {
  static constexpr int kWeights = 1, kPasses = 2, kGates = 2;
  static constexpr bool kPacked = false, kActivateBetween = true, kActivateBehind = false;
};

// The paper's Kernel-2: one packed matrix of gate and up.
struct Interleave {
  static constexpr int kWeights = 1, kPasses = 1, kGates = 2;
  static constexpr bool kPacked = true;
};

// One weight matrix, no activation: the down projection.
struct Plain {
  static constexpr int kWeights = 1, kPasses = 1, kGates = 1;
  static constexpr bool kPacked = false;
};

}  // namespace cuswiglu
