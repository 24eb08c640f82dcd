// Operators whose CPU entry in the dispatcher is not what the device should run: PyTorch gives other backends an entry of
// their own for them, or the CPU kernel draws from the wrong generator.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/convolution_backward_overrideable_ops.h>
#include <ATen/ops/convolution_overrideable_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "kernel.h"

namespace torch_neuronx {

namespace {

at::Tensor convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups) {
  return at::convolution_symint(
      input, weight, bias, stride, padding, dilation, transposed, output_padding, std::move(groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output,
    const at::Tensor& input,
    const at::Tensor& weight,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups,
    std::array<bool, 3> output_mask) {
  // The bias has one value per output channel, wherever the weight keeps them.
  const auto channels = transposed ? weight.sym_size(1) * groups : weight.sym_size(0);
  return at::convolution_backward_symint(
      grad_output,
      input,
      weight,
      c10::SymIntArrayRef(&channels, 1),
      stride,
      padding,
      dilation,
      transposed,
      output_padding,
      std::move(groups),
      output_mask);
}

// ATen's CPU kernel takes no generator and draws from the CPU's default one.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0) {
    return {input.clone(), at::empty_like(input, input.options().dtype(at::kBool))};
  }
  if (!train.value_or(true)) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  if (p >= 1.0) {
    return {at::zeros_like(input), at::zeros_like(input, input.options().dtype(at::kBool))};
  }
  const auto stream = cpu_stream(std::nullopt, kernel_device(), static_cast<uint64_t>(input.numel()));
  auto mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1.0 - p, stream);
  auto output = at::mul(input, mask).mul_(1.0 / (1.0 - p));
  return {std::move(output), std::move(mask)};
}

struct ConvolutionOp : Operator<ConvolutionOp> {
  static constexpr const char* name = "convolution_overrideable";
  using schema = at::_ops::convolution_overrideable::schema;
  static constexpr schema* cpu = &convolution;
};

struct ConvolutionBackwardOp : Operator<ConvolutionBackwardOp> {
  static constexpr const char* name = "convolution_backward_overrideable";
  using schema = at::_ops::convolution_backward_overrideable::schema;
  static constexpr schema* cpu = &convolution_backward;
};

struct NativeDropoutOp : Operator<NativeDropoutOp> {
  static constexpr const char* name = "native_dropout";
  using schema = at::_ops::native_dropout::schema;
  static constexpr schema* cpu = &native_dropout;
};

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  register_own_kernel<ConvolutionOp>(library);
  register_own_kernel<ConvolutionBackwardOp>(library);
  register_own_kernel<NativeDropoutOp>(library);
}

} // namespace torch_neuronx
