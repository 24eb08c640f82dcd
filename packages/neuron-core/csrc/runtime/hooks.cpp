// What generic PyTorch code asks of the backend (torch.accelerator, pinned memory, generators, storage resizing).
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "caching_allocator.h"
#include "device.h"
#include "generator.h"
#include "host_allocator.h"
#include "kernel_scope.h"
#include "storage.h"

namespace torch_neuronx {

struct NeuronHooks final : public at::PrivateUse1HooksInterface {
  void init() const override {
    ensure_initialized();
  }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    (void)device;
    return is_initialized();
  }
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return device_count() > 0;
  }
  c10::DeviceIndex deviceCount() const override {
    return device_count();
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    set_current_device(device);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(device);
  }
  c10::Device getDeviceFromPtr(void* data) const override {
    const auto device = CachingAllocator::get().device_of(data);
    TORCH_CHECK(device >= 0, "The address ", data, " is not device memory of a Neuron core.");
    return {kNeuron, device};
  }
  bool isPinnedPtr(const void* data) const override {
    return is_pinned(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return &host_allocator();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

namespace {
const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new NeuronHooks());
  return true;
}();
} // namespace

// Registered when the library loads, like the hooks: both must exist before the first tensor does.
REGISTER_ALLOCATOR(kNeuron, &CachingAllocator::get())

} // namespace torch_neuronx
