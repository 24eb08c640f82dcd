#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <string>
#include <vector>

namespace torch_neuronx::distributed {

/// The name that torch.distributed calls an operation by.
std::string name_of(c10d::OpType type);

/// What a rank calls.
struct Call {
  c10d::OpType type;
  /// Elements that this rank gives or gets, the same number on every rank; -1 where ranks may differ.
  int64_t count = -1;
  at::ScalarType dtype = at::ScalarType::Undefined;
  /// Of an exchange: the elements for each rank of the group, and from each.
  std::vector<int64_t> given = {};
  std::vector<int64_t> taken = {};

  /// What a call on `tensor` is where every rank gives or gets as much.
  static Call on(c10d::OpType type, const at::Tensor& tensor);
  /// The same for a call on all of `tensors`, which is one without a count where there are none.
  static Call on(c10d::OpType type, const std::vector<at::Tensor>& tensors);
  std::string text() const;
};

} // namespace torch_neuronx::distributed
