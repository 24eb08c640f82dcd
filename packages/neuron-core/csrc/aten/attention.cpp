// Which kernel scaled_dot_product_attention runs: the flash kernel wherever the CPU would take it.
#include <ATen/Context.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_cpu_dispatch.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

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

// Whether nothing but the result's metadata is wanted, as while Dynamo traces: fake tensors, and nobody who records.
bool only_described() {
  using Modes = c10::impl::TorchDispatchModeTLS;
  return Modes::stack_len() == 1 && Modes::get_mode(c10::impl::TorchDispatchModeKey::FAKE).has_value();
}

// What the overrideable operator is defined for. It broadcasts no batches.
bool is_defined(const sdp::sdp_params& call) {
  return call.query.scalar_type() != c10::ScalarType::Double && sdp::check_for_dropout(call, false) &&
      sdp::check_tensor_shapes(call, false) && sdp::check_batch_size_and_num_heads_dense<true>(call, false);
}

// Whether the CPU's flash kernel would take it, whose result has the query's layout; that of the composite is contiguous.
bool fits_flash_kernel(const sdp::sdp_params& call) {
  const auto size = call.query.sym_size(-1);
  return size == call.key.sym_size(-1) && size == call.value.sym_size(-1) && sdp::check_attn_mask_shape(call, false) &&
      sdp::check_nonzero_sequence_lengths_dense(call, false) &&
      sdp::check_last_dim_stride_equals_1_dense<false>(call, false);
}

// Tracing wants the composite, whose parts lower, unless a compiler asks for attention as one operator: it enables the
// overrideable backend without the flash kernel. Functional transforms have rules for the parts only. For metadata one
// operator does as well, and takes a tenth of the time.
int64_t choose_traced(const sdp::sdp_params& call) {
  const auto& context = at::globalContext();
  const bool transformed = call.query.key_set().has_any(
      c10::DispatchKeySet(
          {c10::DispatchKey::FuncTorchBatched,
           c10::DispatchKey::FuncTorchGradWrapper,
           c10::DispatchKey::BatchedNestedTensor}));
  if (!context.userEnabledOverrideableSDP() || transformed || !is_defined(call)) {
    return kMath;
  }
  const bool asked = !context.userEnabledFlashSDP();
  return asked || (only_described() && fits_flash_kernel(call)) ? kOverrideable : kMath;
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
    return choose_traced({query, key, value, masked ? mask : std::nullopt, dropout, causal, grouped});
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
