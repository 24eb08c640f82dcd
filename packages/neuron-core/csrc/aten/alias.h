// From a device tensor to a CPU tensor over the same bytes, and back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include "caching_allocator.h"
#include "cpu_allocator.h"

namespace torch_neuronx {

inline bool is_neuron(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->device_type() == kNeuron;
}

// The slow halves of twin(): the first alias of a block, and storages that are not a plain block of ours.
c10::StorageImpl* make_block_twin(Block& block, const c10::StorageImpl& storage);
c10::Storage make_loose_twin(const c10::StorageImpl& storage);

// The CPU storage over the bytes of a device storage. Does not own them.
inline c10::Storage twin(const c10::StorageImpl& storage) {
  const auto& data = storage.data_ptr();
  if (C10_LIKELY(is_device_block(data))) {
    Block& block = *block_of(data);
    auto* cached = block.twin.load(std::memory_order_acquire);
    if (C10_UNLIKELY(cached == nullptr)) {
      cached = make_block_twin(block, storage);
    }
    if (C10_LIKELY(cached->nbytes() == storage.nbytes())) {
      return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(cached));
    }
  }
  return make_loose_twin(storage);
}

// A CPU tensor over the bytes of a device tensor, for the length of a kernel: it does not own them.
inline at::Tensor borrow_alias(const at::Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  auto alias = c10::make_intrusive<c10::TensorImpl>(
      twin(*impl->unsafe_storage().unsafeGetStorageImpl()), c10::DispatchKeySet(c10::DispatchKey::CPU), impl->dtype());
  alias->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  return at::Tensor(std::move(alias));
}

// The same with the conjugate and negative bits, for kernels that honour them.
inline at::Tensor borrow_alias_with_bits(const at::Tensor& tensor) {
  auto alias = borrow_alias(tensor);
  auto* impl = alias.unsafeGetTensorImpl();
  if (C10_UNLIKELY(tensor.is_conj())) {
    impl->_set_conj(true);
  }
  if (C10_UNLIKELY(tensor.is_neg())) {
    impl->_set_neg(true);
  }
  return alias;
}

// The same, keeping the memory alive: for callers that hold on to it. Carries the conjugate and negative bits.
// Shape, strides, dtype as the device tensor's. Raises when `tensor` is not on device neuron.
at::Tensor cpu_alias(const at::Tensor& tensor);

// Turns a fresh CPU result of a kernel into a device tensor in place. False when its storage is not a fresh block.
inline bool adopt_fresh(at::Tensor& result, c10::DeviceIndex device) {
  auto* impl = result.unsafeGetTensorImpl();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (C10_UNLIKELY(storage == nullptr)) {
    return false;
  }
  auto& data = storage->_mutable_data_ptr_no_checks();
  const c10::Device neuron(kNeuron, device);
  if (data.device().type() != kNeuron) { // else another result shares the storage and was first
    Block* block = nullptr;
    if (C10_LIKELY(data.get() != nullptr)) {
      block = data.get_deleter() == &release_address ? block_at(data.get()) : nullptr;
      if (C10_UNLIKELY(block == nullptr)) {
        return false;
      }
    }
    void* address = data.release_context();
    data = c10::DataPtr(address, block, &release_block, neuron);
    storage->set_allocator(&CachingAllocator::get());
  }
  impl->set_storage_keep_dtype(impl->unsafe_storage());
  impl->_change_backend_component_keys(neuron);
  return true;
}

// Any CPU tensor as a device tensor of the core, accounted as its memory and without a copy (in protected mode foreign
// memory is copied, since only pool memory can be protected). Raises torch.OutOfMemoryError.
at::Tensor adopt(at::Tensor result, c10::DeviceIndex device);

// A device tensor with the shape of `view` over the storage of `base`.
at::Tensor rewrap_view(const at::Tensor& view, const at::Tensor& base);

// After a kernel that may have resized an argument: gives the device tensor the alias's shape and storage.
void write_back_slow(const at::Tensor& alias, const at::Tensor& tensor);
inline void write_back(const at::Tensor& alias, const at::Tensor& tensor) {
  const auto* from = alias.unsafeGetTensorImpl();
  const auto* to = tensor.unsafeGetTensorImpl();
  if (C10_UNLIKELY(
          from->unsafe_storage().unsafeGetStorageImpl()->data() !=
              to->unsafe_storage().unsafeGetStorageImpl()->data() ||
          from->sizes() != to->sizes() || from->strides() != to->strides() ||
          from->storage_offset() != to->storage_offset())) {
    write_back_slow(alias, tensor);
  }
}

} // namespace torch_neuronx
