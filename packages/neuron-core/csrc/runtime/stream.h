// Streams and events of the emulator. A call has finished when it returns, so streams only keep names and order, and an
// event is the moment it was recorded.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace torch_neuronx {

c10::Stream default_stream(c10::DeviceIndex device);
c10::Stream current_stream(c10::DeviceIndex device);
c10::Stream exchange_stream(c10::Stream stream);
c10::Stream new_stream(c10::DeviceIndex device, int priority);
c10::Stream pooled_stream(c10::DeviceIndex device, bool high_priority);

struct Event {
  c10::DeviceIndex device;
  bool timed;
  int64_t recorded_ns;
};
void record_event(void** event, const c10::Stream& stream, c10::EventFlag flag);
void destroy_event(void* event) noexcept;
double elapsed_ms(void* start, void* end);

} // namespace torch_neuronx
