// The fused cells of LSTM and GRU. PyTorch sends every backend but the CPU to them, and the CPU has no kernels for them.
#include "kernel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_thnn_fused_gru_cell_backward_ops.h>
#include <ATen/ops/_thnn_fused_gru_cell_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_backward_impl_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

namespace torch_neuronx {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool given(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

at::Tensor join(std::initializer_list<at::Tensor> gates) {
  return at::cat(std::vector<at::Tensor>(gates), 1);
}

at::Tensor plus(const at::Tensor& gates, const OptionalTensor& bias) {
  return given(bias) ? gates + *bias : gates;
}

// i, f, o = sigmoid, g = tanh; cy = f cx + i g; hy = o tanh(cy). The workspace keeps the four gates.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  const auto gates = (plus(input_gates, input_bias) + plus(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
  auto cy = f * cx + i * g;
  auto hy = o * cy.tanh();
  return {std::move(hy), std::move(cy), join({i, f, g, o})};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const OptionalTensor& grad_hy,
    const OptionalTensor& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias) {
  if (!given(grad_hy) && !given(grad_cy)) {
    return {};
  }
  const auto gates = workspace.chunk(4, 1);
  const auto &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  const auto squashed = cy.tanh();
  const auto from_hy = given(grad_hy) ? *grad_hy : at::zeros_like(cy);
  auto into_cell = from_hy * o * (1 - squashed * squashed);
  if (given(grad_cy)) {
    into_cell = into_cell + *grad_cy;
  }
  auto grad_gates = join(
      {into_cell * g * i * (1 - i),
       into_cell * cx * f * (1 - f),
       into_cell * i * (1 - g * g),
       from_hy * squashed * o * (1 - o)});
  auto grad_bias = has_bias ? grad_gates.sum(0) : at::Tensor();
  return {std::move(grad_gates), into_cell * f, std::move(grad_bias)};
}

// r, z = sigmoid; n = tanh(in + r hn); hy = n + z (hx - n). The workspace keeps r, z, n, hx and hn.
std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  const auto from_input = plus(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = plus(hidden_gates, hidden_bias).chunk(3, 1);
  const auto r = (from_input[0] + from_hidden[0]).sigmoid();
  const auto z = (from_input[1] + from_hidden[1]).sigmoid();
  const auto n = (from_input[2] + r * from_hidden[2]).tanh();
  return {n + z * (hx - n), join({r, z, n, hx, from_hidden[2]})};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const auto kept = workspace.chunk(5, 1);
  const auto &r = kept[0], &z = kept[1], &n = kept[2], &hx = kept[3], &hn = kept[4];
  const auto grad_z = grad_hy * (hx - n) * z * (1 - z);
  const auto grad_n = grad_hy * (1 - z) * (1 - n * n);
  const auto grad_r = grad_n * hn * r * (1 - r);
  auto grad_input = join({grad_r, grad_z, grad_n});
  auto grad_hidden = join({grad_r, grad_z, grad_n * r});
  auto input_bias = has_bias ? grad_input.sum(0) : at::Tensor();
  auto hidden_bias = has_bias ? grad_hidden.sum(0) : at::Tensor();
  return {std::move(grad_input), std::move(grad_hidden), grad_hy * z, std::move(input_bias), std::move(hidden_bias)};
}

struct LstmCellOp : Operator<LstmCellOp> {
  static constexpr const char* name = "_thnn_fused_lstm_cell";
  using schema = at::_ops::_thnn_fused_lstm_cell::schema;
  static constexpr schema* cpu = &lstm_cell;
};

struct LstmCellBackwardOp : Operator<LstmCellBackwardOp> {
  static constexpr const char* name = "_thnn_fused_lstm_cell_backward_impl";
  using schema = at::_ops::_thnn_fused_lstm_cell_backward_impl::schema;
  static constexpr schema* cpu = &lstm_cell_backward;
};

struct GruCellOp : Operator<GruCellOp> {
  static constexpr const char* name = "_thnn_fused_gru_cell";
  using schema = at::_ops::_thnn_fused_gru_cell::schema;
  static constexpr schema* cpu = &gru_cell;
};

struct GruCellBackwardOp : Operator<GruCellBackwardOp> {
  static constexpr const char* name = "_thnn_fused_gru_cell_backward";
  using schema = at::_ops::_thnn_fused_gru_cell_backward::schema;
  static constexpr schema* cpu = &gru_cell_backward;
};

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  register_own_kernel<LstmCellOp>(library);
  register_own_kernel<LstmCellBackwardOp>(library);
  register_own_kernel<GruCellOp>(library);
  register_own_kernel<GruCellBackwardOp>(library);
}

} // namespace torch_neuronx
