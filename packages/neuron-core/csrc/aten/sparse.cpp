#include "sparse.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>

#include "alias.h"

namespace torch_neuronx {

namespace {

bool is_coo(const at::Tensor& tensor) {
  return tensor.layout() == c10::kSparse;
}

at::SparseTensorImpl* coo(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl* compressed(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

void check_layout(const at::Tensor& tensor) {
  const auto layout = tensor.layout();
  TORCH_CHECK(
      layout == c10::kSparse || layout == c10::kSparseCsr || layout == c10::kSparseCsc || layout == c10::kSparseBsr ||
          layout == c10::kSparseBsc,
      "Device neuron has no tensors of layout ",
      layout,
      ". Use .to_dense() first.");
}

} // namespace

at::Tensor map_sparse(const at::Tensor& tensor, const MapComponent& component) {
  check_layout(tensor);
  const bool to_neuron = !is_neuron(tensor);
  if (is_coo(tensor)) {
    auto made = at::detail::make_tensor<at::SparseTensorImpl>(
        c10::DispatchKeySet(to_neuron ? c10::DispatchKey::SparsePrivateUse1 : c10::DispatchKey::SparseCPU),
        tensor.dtype());
    assign_sparse(made, tensor, component);
    return made;
  }
  const auto values = component(compressed(tensor)->values());
  auto made = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      c10::DispatchKeySet(to_neuron ? c10::DispatchKey::SparseCsrPrivateUse1 : c10::DispatchKey::SparseCsrCPU),
      values.device(),
      tensor.layout(),
      tensor.dtype());
  assign_sparse(made, tensor, component);
  return made;
}

void assign_sparse(const at::Tensor& target, const at::Tensor& source, const MapComponent& component) {
  if (is_coo(source)) {
    const auto* from = coo(source);
    auto* to = coo(target);
    to->raw_resize_(from->sparse_dim(), from->dense_dim(), source.sizes());
    to->set_indices_and_values_unsafe(component(from->indices()), component(from->values()));
    to->set_coalesced(from->coalesced());
  } else {
    const auto* from = compressed(source);
    compressed(target)->set_member_tensors(
        component(from->compressed_indices()),
        component(from->plain_indices()),
        component(from->values()),
        source.sizes());
  }
}

} // namespace torch_neuronx
