// While one is alive on a thread, that thread runs a kernel of a core: device memory is readable, and what CPU kernels
// allocate comes from the core's pools.
#pragma once

#include <c10/core/Device.h>

#include "segment.h"

namespace torch_neuronx {

// The core whose kernel this thread runs, or -1. An accessor, because a thread_local does not cross a shared library.
c10::DeviceIndex kernel_device() noexcept;
c10::DeviceIndex exchange_kernel_device(c10::DeviceIndex index) noexcept;

class KernelScope {
 public:
  explicit KernelScope(c10::DeviceIndex device) : previous_(exchange_kernel_device(device)) {
    if (C10_UNLIKELY(protection_enabled())) {
      open_device_memory();
      opened_ = true;
    }
  }
  ~KernelScope() {
    exchange_kernel_device(previous_);
    if (C10_UNLIKELY(opened_)) {
      close_device_memory();
    }
  }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  c10::DeviceIndex previous_;
  bool opened_ = false;
};

} // namespace torch_neuronx
