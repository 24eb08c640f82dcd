// Sparse tensors of a core: their index and value tensors are device tensors, and the host computes with them. The chip has
// no sparse layouts.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace torch_neuronx {

using MapComponent = std::function<at::Tensor(const at::Tensor&)>;

inline bool is_sparse_layout(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() != c10::kStrided;
}

// The same sparse tensor with every component sent through `component`, on the device that those are on.
at::Tensor map_sparse(const at::Tensor& tensor, const MapComponent& component);

// Gives `target` the contents of `source`, a sparse tensor of the same layout, with components sent through `component`.
void assign_sparse(const at::Tensor& target, const at::Tensor& source, const MapComponent& component);

} // namespace torch_neuronx
