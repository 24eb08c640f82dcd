#include "storage.h"

#include <cstring>

#include "caching_allocator.h"
#include "kernel_scope.h"

namespace torch_neuronx {

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable.");
  const auto device = storage.device().index();
  auto data = CachingAllocator::get().allocate_on(bytes, device);
  const size_t kept = std::min(bytes, storage.nbytes());
  if (kept > 0 && storage.data() != nullptr) {
    const KernelScope scope(device);
    std::memcpy(data.mutable_get(), storage.data(), kept);
  }
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

} // namespace torch_neuronx
