#include <limits>

#include "handler.h"

namespace torch_neuronx::compile {

// The largest element of each window over the axes behind the first two; with two results, also its place among the
// elements of those axes. Which of equals, and NaN, is decided as eager mode does. `uneven` is what lies before and after
// each axis, the last one first, where torch cannot say it.
ffi::Error pool(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  return run_kernel([&] {
    auto input = viewed(operands, 0, attributes);
    const bool plane = input.dim() == 4;
    const auto uneven = list(required<Integers>(attributes, "uneven"));
    if (!uneven.empty()) {
      input = at::constant_pad_nd(input, uneven, -std::numeric_limits<double>::infinity());
    }
    if (plane) { // ATen's kernel is a vector one for channels last only
      input = input.contiguous(at::MemoryFormat::ChannelsLast);
    }
    const auto kernel = plane ? at::max_pool2d_with_indices : at::max_pool3d_with_indices;
    const auto [values, places] = kernel(
        input,
        list(required<Integers>(attributes, "window")),
        list(required<Integers>(attributes, "stride")),
        list(required<Integers>(attributes, "padding")),
        list(required<Integers>(attributes, "dilation")),
        false);
    seen(result(results, 0), "result", attributes).copy_(values);
    if (results.size() > 1) {
      seen(result(results, 1), "result", attributes).copy_(places);
    }
  });
}

} // namespace torch_neuronx::compile
