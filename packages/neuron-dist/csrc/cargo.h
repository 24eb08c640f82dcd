#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>
#include <utility>
#include <vector>

#include "reduction.h"

namespace torch_neuronx::distributed {

using TensorList = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;

/// What the carrier does with a tensor. Spoil: it reads the values and writes partial results over them, which the
/// tensor must not see.
enum class Access { Read, Write, ReadWrite, Spoil };

/// The same bytes in the same shape, in a dtype the carrier knows; complex values become pairs.
at::Tensor carried_view(at::Tensor values);

/// The same bytes of a contiguous tensor in one dimension.
at::Tensor flat(at::Tensor values);

/// While one is alive, device memory is readable in every thread, the carrier's included (protected mode closes it
/// outside kernels).
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;

 private:
  bool opened_;
};

/// The device memory of one collective, in the form the carrier takes: contiguous CPU tensors of a dtype it knows.
///
/// A contiguous tensor is passed as its CPU alias: the same bytes, no copy. A copy, made in device memory, is needed
/// only for strided tensors and for reductions in a wider dtype than the tensor's. The device tensors are kept alive
/// until the cargo is gone.
class Cargo {
 public:
  /// Values move unaltered, whatever their dtype.
  Cargo() = default;
  /// Values are combined as `plan` says.
  Cargo(Reduction plan, int ranks) : plan_(std::move(plan)), ranks_(ranks) {}

  Cargo(const Cargo&) = delete;
  Cargo& operator=(const Cargo&) = delete;

  at::Tensor load(const at::Tensor& tensor, Access access);
  TensorList load(const TensorList& tensors, Access access);
  TensorLists load(const TensorLists& lists, Access access);

  /// One new buffer, in the dtype of the reduction if there is one, for `parts` end to end: they are read into it, or
  /// written from it on completion. The carrier gets its carried_view.
  at::Tensor load_flat(const TensorList& parts, Access access);
  /// On completion the values of `buffer` from `offset` on go to `destination`. `buffer` is one of load_flat.
  void deliver(const at::Tensor& buffer, int64_t offset, const at::Tensor& destination);

  /// Once the carrier is done: finishes reductions and writes copies back. Any thread.
  void unload();

 private:
  struct Delivery {
    at::Tensor from;
    at::Tensor to; // undefined: `from` is the destination itself
  };

  void admit(const at::Tensor& tensor);
  at::ScalarType buffer_dtype(at::ScalarType dtype) const {
    return plan_ ? plan_->compute : dtype;
  }

  std::optional<Reduction> plan_;
  int ranks_ = 1;
  std::optional<c10::Device> device_;
  std::optional<at::ScalarType> dtype_;
  TensorList held_;
  std::optional<OpenMemory> open_;
  std::vector<Delivery> deliveries_;
};

} // namespace torch_neuronx::distributed
