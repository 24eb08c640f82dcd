#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include "handler.h"

namespace torch_neuronx::compile {
namespace {

// ATen's kernel takes rows whose elements lie side by side. In float16 it is several times slower than in float32.
at::Tensor rows(const ffi::RemainingArgs& operands, size_t position, const ffi::Dictionary& attributes) {
  const auto tensor = viewed(operands, position, attributes);
  if (tensor.scalar_type() == at::kHalf) {
    return tensor.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
  }
  return tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}

std::optional<at::Tensor> bias(
    const ffi::RemainingArgs& operands, size_t position, bool present, const ffi::Dictionary& attributes) {
  return present ? std::optional(rows(operands, position, attributes)) : std::nullopt;
}

// Result `position`, whose memory has heads within queries.
at::Tensor by_query(const ffi::RemainingRets& results, size_t position) {
  const auto memory = result(results, position);
  const auto sizes = memory.sizes();
  return memory.view({sizes[0], sizes[2], sizes[1], sizes[3]}).transpose(1, 2);
}

} // namespace

// Weighs the values of each query's keys. Operands: query, key, value and maybe the bias of the scores, [batch, heads,
// length, size]. Results: the weighted values, [batch, length, heads, size], and the logarithm of each query's sum of
// exponentials, 0 without a key.
ffi::Error attend(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  return run_kernel([&] {
    const auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        rows(operands, 0, attributes),
        rows(operands, 1, attributes),
        rows(operands, 2, attributes),
        0.0,
        required<bool>(attributes, "causal"),
        bias(operands, 3, required<bool>(attributes, "bias"), attributes),
        required<double>(attributes, "scale"));
    result(results, 0).copy_(output.transpose(1, 2));
    result(results, 1).copy_(logsumexp);
  });
}

// Gradients of query, key and value. Operands: the gradient, what `attend` takes, and what it gives.
ffi::Error attend_backward(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  return run_kernel([&] {
    const bool biased = required<bool>(attributes, "bias");
    const size_t given = biased ? 5 : 4; // what `attend` takes, behind the gradient, ends here
    const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        rows(operands, 0, attributes),
        rows(operands, 1, attributes),
        rows(operands, 2, attributes),
        rows(operands, 3, attributes),
        rows(operands, given, attributes).transpose(1, 2),
        viewed(operands, given + 1, attributes),
        0.0,
        required<bool>(attributes, "causal"),
        bias(operands, 4, biased, attributes),
        required<double>(attributes, "scale"));
    by_query(results, 0).copy_(query);
    by_query(results, 1).copy_(key);
    by_query(results, 2).copy_(value);
  });
}

} // namespace torch_neuronx::compile
