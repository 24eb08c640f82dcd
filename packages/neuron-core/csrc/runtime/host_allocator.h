// Pinned host memory: what DataLoader(pin_memory=True) and Tensor.pin_memory() hand out.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace torch_neuronx {

at::HostAllocator& host_allocator();
bool is_pinned(const void* address);

} // namespace torch_neuronx
