#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <optional>

namespace torch_neuronx::distributed {

/// How one reduction is carried out with what the carrier offers (SUM, PRODUCT, MIN, MAX and the bitwise three).
struct Reduction {
  c10d::ReduceOp carried;
  /// Dtype the values are combined in. The chip reduces every float in float32, and so does the emulator unless relaxed.
  at::ScalarType compute;
  /// PREMUL_SUM: what each rank multiplies its values with before they are summed.
  std::optional<double> factor;
  /// AVG: the sum is divided by the number of ranks.
  bool average = false;

  bool copies(at::ScalarType dtype) const {
    return compute != dtype || factor.has_value();
  }
  void before(const at::Tensor& values) const;
  void after(const at::Tensor& values, int ranks) const;
};

/// The plan for `op` on values of `dtype`; raises TypeError where the pair has no meaning.
Reduction plan_reduction(const c10d::ReduceOp& op, at::ScalarType dtype);

} // namespace torch_neuronx::distributed
