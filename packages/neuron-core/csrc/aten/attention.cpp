// Which kernel scaled_dot_product_attention runs: the flash kernel wherever the CPU would take it.
#include <ATen/Context.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_cpu_dispatch.h>

#include "alias.h"
#include "kernel_scope.h"

namespace torch_neuronx {

namespace {

// Backends as at::SDPBackend numbers them.
constexpr int64_t kMath = 0;
constexpr int64_t kOverrideable = 4;

// Tracing (fake tensors, functional transforms) has no bytes to look at.
bool has_bytes(const at::Tensor& tensor) {
  const auto keys = tensor.key_set();
  return is_neuron(tensor) && keys.has_backend(c10::BackendComponent::PrivateUse1Bit) &&
      !keys.has(c10::DispatchKey::Python) && tensor.has_storage();
}

// Tracing wants the composite, whose parts lower, unless a compiler asks for attention as one operator: it enables the
// overrideable backend without the flash kernel. Functional transforms have rules for the parts only.
int64_t choose_traced(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout) {
  const auto& context = at::globalContext();
  const bool asked = context.userEnabledOverrideableSDP() && !context.userEnabledFlashSDP();
  const bool transformed = query.key_set().has_any(
      c10::DispatchKeySet(
          {c10::DispatchKey::FuncTorchBatched,
           c10::DispatchKey::FuncTorchGradWrapper,
           c10::DispatchKey::BatchedNestedTensor}));
  const bool float64 = query.scalar_type() == c10::ScalarType::Double;
  const bool batched = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  return asked && !transformed && !float64 && batched && dropout == 0.0 ? kOverrideable : kMath;
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
  if (!has_bytes(query) || !has_bytes(key) || !has_bytes(value) || (masked && !has_bytes(*mask))) {
    return choose_traced(query, key, value, dropout);
  }
  if ((masked && mask->requires_grad()) || float64) {
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
