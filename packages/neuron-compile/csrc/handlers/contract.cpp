#include <numeric>

#include "handler.h"

namespace torch_neuronx::compile {
namespace {

int64_t extent(const at::Tensor& tensor, int64_t begin, int64_t end) {
  const auto sizes = tensor.sizes().slice(begin, end - begin);
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

} // namespace

// Sums products over shared axes. The views have their axes in the order: batch, free, contracted on the left; batch,
// contracted, free on the right; the result has batch, left free, right free.
ffi::Error contract(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  return run_kernel([&] {
    const auto left = viewed(operands, 0, attributes);
    const auto right = viewed(operands, 1, attributes);
    const auto batches = required<int64_t>(attributes, "batch");
    const auto contracted = required<int64_t>(attributes, "contracted");
    const auto batch = extent(left, 0, batches);
    const auto rows = extent(left, batches, left.dim() - contracted);
    const auto inner = extent(left, left.dim() - contracted, left.dim());
    const auto columns = extent(right, batches + contracted, right.dim());
    auto out = result(results, 0);
    if (batches == 0) {
      auto product = out.view({rows, columns});
      at::mm_out(product, left.reshape({rows, inner}), right.reshape({inner, columns}));
    } else {
      auto product = out.view({batch, rows, columns});
      at::bmm_out(product, left.reshape({batch, rows, inner}), right.reshape({batch, inner, columns}));
    }
  });
}

} // namespace torch_neuronx::compile
