#include "cpu_allocator.h"

#include <cstring>

#include <c10/core/CPUAllocator.h>

#include "caching_allocator.h"
#include "kernel_scope.h"

namespace torch_neuronx {

namespace {

thread_local c10::DeviceIndex kernel_device_of_thread = -1;

c10::DeleterFnPtr host_deleter = nullptr;

class KernelAwareCpuAllocator final : public c10::Allocator {
 public:
  explicit KernelAwareCpuAllocator(c10::Allocator* host) : host_(host) {
    host_deleter = host->raw_deleter();
  }

  c10::DataPtr allocate(size_t bytes) override {
    const auto device = kernel_device_of_thread;
    if (C10_LIKELY(device < 0) || bytes == 0) {
      return host_->allocate(bytes);
    }
    // oneDNN takes memory as a bare address (raw_allocate), so the address has to be the context.
    void* address = CachingAllocator::get().take(bytes, device)->ptr;
    return {address, address, &release_address, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release_address;
  }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }

 private:
  c10::Allocator* host_;
};

} // namespace

void release_address(void* address) {
  if (Block* block = block_at(address)) {
    release_block(block);
  } else if (address != nullptr) {
    host_deleter(address);
  }
}

c10::DeviceIndex kernel_device() noexcept {
  return kernel_device_of_thread;
}

c10::DeviceIndex exchange_kernel_device(c10::DeviceIndex index) noexcept {
  const auto previous = kernel_device_of_thread;
  kernel_device_of_thread = index;
  return previous;
}

void install_cpu_allocator() {
  static auto* allocator = new KernelAwareCpuAllocator(c10::GetCPUAllocator());
  static const bool installed = [] {
    c10::SetCPUAllocator(allocator, 255);
    return true;
  }();
  (void)installed;
}

} // namespace torch_neuronx
