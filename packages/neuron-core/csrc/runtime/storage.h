// Changing the size of device storages.
#pragma once

#include <c10/core/StorageImpl.h>

namespace torch_neuronx {

// Keeps the first min(old, new) bytes. Raises torch.OutOfMemoryError.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

} // namespace torch_neuronx
