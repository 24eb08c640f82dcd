#include "alias.h"

#include <ATen/ops/empty_strided.h>

#include "kernel_scope.h"

namespace torch_neuronx {

namespace {

c10::intrusive_ptr<c10::StorageImpl> cpu_storage(const c10::StorageImpl& storage, c10::DataPtr&& data) {
  // Resizable, because CPU kernels resize their out= arguments.
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(data), c10::GetCPUAllocator(), true);
}

} // namespace

c10::StorageImpl* make_block_twin(Block& block, const c10::StorageImpl& storage) {
  auto made = cpu_storage(storage, c10::DataPtr(block.ptr, c10::Device(c10::kCPU)));
  c10::StorageImpl* expected = nullptr;
  if (block.twin.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) {
    return made.release();
  }
  return expected; // another thread was first
}

c10::Storage make_loose_twin(const c10::StorageImpl& storage) {
  auto* address = const_cast<void*>(storage.data()); // NOLINT: the alias writes only where the schema says so
  return c10::Storage(cpu_storage(storage, c10::DataPtr(address, c10::Device(c10::kCPU))));
}

at::Tensor cpu_alias(const at::Tensor& tensor) {
  TORCH_CHECK(is_neuron(tensor), "cpu_alias expects a tensor on device neuron, not on ", tensor.device(), ".");
  const auto* impl = tensor.unsafeGetTensorImpl();
  auto* owner = new c10::Storage(impl->unsafe_storage());
  auto* address = const_cast<void*>(owner->data()); // NOLINT
  c10::DataPtr data(
      address, owner, [](void* held) { delete static_cast<c10::Storage*>(held); }, c10::Device(c10::kCPU));
  auto alias = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(cpu_storage(*owner->unsafeGetStorageImpl(), std::move(data))),
      c10::DispatchKeySet(c10::DispatchKey::CPU),
      impl->dtype());
  alias->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  if (impl->is_conj()) {
    alias->_set_conj(true);
  }
  if (impl->is_neg()) {
    alias->_set_neg(true);
  }
  return at::Tensor(std::move(alias));
}

namespace {

at::Tensor wrap(c10::Storage&& storage, const at::Tensor& like) {
  const auto* impl = like.unsafeGetTensorImpl();
  auto made = c10::make_intrusive<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), impl->dtype());
  made->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  if (impl->is_conj()) {
    made->_set_conj(true);
  }
  if (impl->is_neg()) {
    made->_set_neg(true);
  }
  return at::Tensor(std::move(made));
}

} // namespace

at::Tensor rewrap_view(const at::Tensor& view, const at::Tensor& base) {
  return wrap(c10::Storage(base.unsafeGetTensorImpl()->unsafe_storage()), view);
}

at::Tensor adopt(at::Tensor result, c10::DeviceIndex device) {
  device = checked_index(device);
  if (!result.defined() || result.unsafeGetTensorImpl()->device_type() == kNeuron) {
    return result;
  }
  TORCH_CHECK(
      result.device().is_cpu() && result.layout() == c10::kStrided,
      "Only a strided CPU tensor can become device memory of a core, not one with layout ",
      result.layout(),
      " on ",
      result.device(),
      ".");
  if (result.use_count() == 1 && result.storage().use_count() == 1 && adopt_fresh(result, device)) {
    return result;
  }
  auto* storage = result.storage().unsafeGetStorageImpl();
  // Memory that the storage does not own (an alias of an argument, a blob) may go away: that is copied, too.
  const bool borrowed = storage->data_ptr().get_context() == nullptr;
  if (protection_enabled() || borrowed) {
    const KernelScope scope(device);
    auto copy =
        at::empty_strided(result.sizes(), result.strides(), result.options().requires_grad(false).pinned_memory(false));
    copy.copy_(result);
    adopt_fresh(copy, device);
    return copy;
  }
  const size_t bytes = storage->nbytes();
  auto* address = storage->mutable_data();
  auto* owner = new c10::Storage(result.storage());
  c10::DataPtr held(
      address, owner, [](void* kept) { delete static_cast<c10::Storage*>(kept); }, c10::Device(c10::kCPU));
  auto* block = CachingAllocator::get().take_foreign(address, bytes, device, std::move(held));
  auto made = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      bytes,
      c10::DataPtr(address, block, &release_block, c10::Device(kNeuron, device)),
      &CachingAllocator::get(),
      true);
  return wrap(c10::Storage(std::move(made)), result);
}

void write_back_slow(const at::Tensor& alias, const at::Tensor& tensor) {
  auto* from = alias.unsafeGetTensorImpl();
  auto* to = tensor.unsafeGetTensorImpl();
  auto* source = from->unsafe_storage().unsafeGetStorageImpl();
  auto* target = to->unsafe_storage().unsafeGetStorageImpl();
  if (source->data() != target->data()) {
    // The kernel gave the alias new memory: a block of the core, which moves over. The old block goes with its twin.
    const size_t bytes = source->nbytes();
    const c10::Device neuron = target->device();
    c10::DataPtr data = source->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
    source->set_nbytes(0);
    Block* block = data.get_deleter() == &release_address ? block_at(data.get()) : nullptr;
    TORCH_INTERNAL_ASSERT(data.get() == nullptr || block != nullptr, "a resized argument is not device memory");
    void* address = block != nullptr ? data.release_context() : nullptr;
    target->set_data_ptr_noswap(c10::DataPtr(address, block, &release_block, neuron));
    target->set_nbytes(bytes);
  }
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
}

} // namespace torch_neuronx
