// Routes what CPU kernels allocate while they run for a core into that core's pools.
#pragma once

namespace torch_neuronx {

// Wraps PyTorch's CPU allocator. Called once, when the device opens; outside kernels nothing changes but one
// thread-local read per allocation.
void install_cpu_allocator();

// The deleter of what CPU kernels allocate, in a pool or on the host: its context is the address itself.
void release_address(void* address);

} // namespace torch_neuronx
