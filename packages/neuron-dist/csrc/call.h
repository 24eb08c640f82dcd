#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <string>
#include <vector>

namespace torch_neuronx::distributed {

/// The name that torch.distributed calls an operation by.
std::string name_of(c10d::OpType type);

/// The name of a reduction, as `ReduceOp` has it.
std::string name_of(c10d::ReduceOp::RedOpType reduction);

/// What a rank calls.
struct Call {
  c10d::OpType type;
  /// Elements that this rank gives or gets, the same number on every rank; -1 where ranks may differ.
  int64_t count = -1;
  at::ScalarType dtype = at::ScalarType::Undefined;
  /// Of an exchange: the elements for each rank of the group, and from each.
  std::vector<int64_t> given = {};
  std::vector<int64_t> taken = {};
  /// The rank in the group that gives or gets all; -1 where there is none.
  int64_t root = -1;
  /// How the values of all ranks are put together, a `RedOpType`; -1 where they are not.
  int64_t reduction = -1;

  /// What a call on `tensor` is where every rank gives or gets as much.
  static Call on(c10d::OpType type, const at::Tensor& tensor);
  /// The same for a call on all of `tensors`, which is one without a count where there are none.
  static Call on(c10d::OpType type, const std::vector<at::Tensor>& tensors);
  /// The same call with `rank` as its root.
  Call rooted(int64_t rank) &&;
  /// The same call with the reduction that the transport carries out: a mean is a sum, and of truth values there are
  /// two reductions, whatever they are called.
  Call reducing(const c10d::ReduceOp& carried) &&;
  /// Operation, number of elements and dtype.
  std::string text() const;
};

} // namespace torch_neuronx::distributed
