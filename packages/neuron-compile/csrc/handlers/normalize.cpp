#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "handler.h"

namespace torch_neuronx::compile {
namespace {

// The weight in float32, ones where there is none. With it ATen gives statistics of narrower tensors in float32.
at::Tensor wide_weight(const ffi::RemainingArgs& operands, size_t position, bool present, at::IntArrayRef shape) {
  return present ? operand(operands, position).to(at::kFloat) : at::ones(shape, at::kFloat);
}

} // namespace

// Normalizes over the last `axes` axes. Operands: the input, and where `weight` and `bias` say so those. Results: the
// normalized input, and the mean and the inverse deviation of each row, in float32.
ffi::Error layer_norm(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  return run_kernel([&] {
    const auto input = operand(operands, 0);
    const auto shape = input.sizes().slice(input.dim() - required<int64_t>(attributes, "axes"));
    const bool weighted = required<bool>(attributes, "weight");
    std::optional<at::Tensor> bias;
    if (required<bool>(attributes, "bias")) {
      bias = operand(operands, weighted ? 2 : 1).to(at::kFloat);
    }
    const auto weight = wide_weight(operands, 1, weighted, shape);
    const auto [out, mean, rstd] =
        at::native_layer_norm(input, shape, weight, bias, required<double>(attributes, "eps"));
    result(results, 0).copy_(out);
    result(results, 1).copy_(mean);
    result(results, 2).copy_(rstd);
  });
}

// Gradients of input, weight and bias, those that `wanted` names. Operands: the gradient, the input, what `layer_norm`
// says of its rows, and maybe the weight.
ffi::Error layer_norm_backward(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  return run_kernel([&] {
    // Of narrow rows ATen's kernel sums the gradients of weight and bias in their own dtype.
    const auto input = operand(operands, 1).to(at::kFloat);
    const auto shape = input.sizes().slice(input.dim() - required<int64_t>(attributes, "axes"));
    const auto wanted = list(required<Integers>(attributes, "wanted"));
    const auto weight = wide_weight(operands, 4, required<bool>(attributes, "weight"), shape);
    const auto [grad_input, grad_weight, grad_bias] = at::native_layer_norm_backward(
        operand(operands, 0).to(at::kFloat),
        input,
        shape,
        operand(operands, 2),
        operand(operands, 3),
        weight,
        weight, // of the bias only the dtype counts
        {wanted[0] != 0, wanted[1] != 0, wanted[2] != 0});
    const std::array<at::Tensor, 3> found = {grad_input, grad_weight, grad_bias};
    for (size_t i = 0; i < found.size(); ++i) {
      if (wanted[i] != 0) {
        result(results, i).copy_(found[i]);
      }
    }
  });
}

} // namespace torch_neuronx::compile
