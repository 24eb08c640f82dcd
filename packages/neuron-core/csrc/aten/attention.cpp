// Which kernel scaled_dot_product_attention runs: the flash kernel wherever the CPU would take it.
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_cpu_dispatch.h>

#include "alias.h"
#include "kernel_scope.h"

namespace torch_neuronx {

namespace {

// Backends as at::SDPBackend numbers them.
constexpr int64_t kMath = 0;

// Tracing (fake tensors, functional transforms) has no bytes to look at and wants the composite, which lowers.
bool has_bytes(const at::Tensor& tensor) {
  const auto keys = tensor.key_set();
  return is_neuron(tensor) && keys.has_backend(c10::BackendComponent::PrivateUse1Bit) &&
      !keys.has(c10::DispatchKey::Python) && tensor.has_storage();
}

int64_t choose_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout,
    bool causal,
    std::optional<double> scale,
    bool grouped) {
  const bool masked = mask.has_value() && mask->defined();
  const bool float64 = query.scalar_type() == c10::ScalarType::Double; // narrowed op by op
  if (!has_bytes(query) || !has_bytes(key) || !has_bytes(value) ||
      (masked && (!has_bytes(*mask) || mask->requires_grad())) || float64) {
    return kMath;
  }
  const auto alias_mask = masked ? std::optional<at::Tensor>(borrow_alias(*mask)) : std::nullopt;
  return at::cpu::_fused_sdp_choice(
      borrow_alias(query), borrow_alias(key), borrow_alias(value), alias_mask, dropout, causal, scale, grouped);
}

} // namespace

} // namespace torch_neuronx

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_neuronx::choose_attention)
} // namespace at::native
