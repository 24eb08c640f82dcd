// What PyTorch asks of a device while it runs: which one is current, its streams, its events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device.h"
#include "stream.h"

namespace torch_neuronx {

struct NeuronGuardImpl final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kNeuron;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kNeuron, exchange_device(device.index())};
  }
  c10::Device getDevice() const override {
    return {kNeuron, current_device()};
  }
  void setDevice(c10::Device device) const override {
    set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    set_current_device_unchecked(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count();
  }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    (void)device;
    c10::DeviceCapability capability; // everything, less what has no place in device memory
    auto& types = capability.capability_data.supported_scalar_types;
    types.has_QInt8 = false;
    types.has_QUInt8 = false;
    types.has_QInt32 = false;
    types.has_QUInt4x2 = false;
    types.has_QUInt2x4 = false;
    return capability;
  }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(device.index());
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return new_stream(device.index(), priority);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return pooled_stream(device.index(), high_priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return exchange_stream(stream);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    (void)stream;
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    (void)stream;
    ensure_initialized();
  }
  bool isStreamCapturing(const c10::Stream& stream) const override {
    (void)stream;
    return false;
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    ensure_initialized();
    checked_index(device);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device, const c10::EventFlag flag)
      const override {
    (void)device;
    record_event(event, stream, flag);
  }
  void block(void* event, const c10::Stream& stream) const override {
    (void)event;
    (void)stream;
  }
  bool queryEvent(void* event) const override {
    (void)event;
    return true;
  }
  void synchronizeEvent(void* event) const override {
    (void)event;
  }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    (void)device;
    destroy_event(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex device) const override {
    (void)device;
    return elapsed_ms(start, end);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    (void)data;
    (void)stream;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, NeuronGuardImpl);

} // namespace torch_neuronx
