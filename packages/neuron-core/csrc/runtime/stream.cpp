#include "stream.h"

#include <atomic>
#include <chrono>
#include <vector>

#include <c10/util/Exception.h>

#include "device.h"

namespace torch_neuronx {

namespace {

constexpr c10::StreamId kDefault = 0;
constexpr c10::StreamId kPoolSize = 32; // ids 1..32 are the shared pool, later ones belong to their makers
std::atomic<c10::StreamId> next_pooled{0};
std::atomic<c10::StreamId> next_own{kPoolSize + 1};

std::vector<c10::StreamId>& current_ids() {
  static thread_local std::vector<c10::StreamId> ids;
  if (ids.size() < static_cast<size_t>(device_count())) {
    ids.resize(static_cast<size_t>(device_count()), kDefault);
  }
  return ids;
}

c10::Stream stream(c10::StreamId id, c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kNeuron, device), id);
}

int64_t now_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

} // namespace

c10::Stream default_stream(c10::DeviceIndex device) {
  return stream(kDefault, checked_index(device));
}

c10::Stream current_stream(c10::DeviceIndex device) {
  const auto index = checked_index(device);
  const auto& ids = current_ids();
  return stream(static_cast<size_t>(index) < ids.size() ? ids[static_cast<size_t>(index)] : kDefault, index);
}

c10::Stream exchange_stream(c10::Stream wanted) {
  const auto index = checked_index(wanted.device_index());
  auto& id = current_ids()[static_cast<size_t>(index)];
  const auto previous = stream(id, index);
  id = wanted.id();
  return previous;
}

c10::Stream new_stream(c10::DeviceIndex device, int priority) {
  (void)priority; // one queue per core: priorities are accepted and have nothing to order
  return stream(next_own.fetch_add(1), checked_index(device));
}

c10::Stream pooled_stream(c10::DeviceIndex device, bool high_priority) {
  (void)high_priority;
  return stream(1 + next_pooled.fetch_add(1) % kPoolSize, checked_index(device));
}

void record_event(void** event, const c10::Stream& stream, c10::EventFlag flag) {
  auto* recorded = static_cast<Event*>(*event);
  if (recorded == nullptr) {
    recorded = new Event{stream.device_index(), flag == c10::EventFlag::BACKEND_DEFAULT, 0};
    *event = recorded;
  }
  TORCH_CHECK(
      recorded->device == stream.device_index(),
      "An event of neuron:",
      static_cast<int>(recorded->device),
      " cannot be recorded on a stream of ",
      stream.device(),
      ". Make one event per core.");
  recorded->recorded_ns = now_ns();
}

void destroy_event(void* event) noexcept {
  delete static_cast<Event*>(event);
}

double elapsed_ms(void* start, void* end) {
  const auto* first = static_cast<Event*>(start);
  const auto* second = static_cast<Event*>(end);
  TORCH_CHECK(first != nullptr && second != nullptr, "Record both events before asking for the time between them.");
  TORCH_CHECK(first->timed && second->timed, "Both events need enable_timing=True to measure the time between them.");
  return static_cast<double>(second->recorded_ns - first->recorded_ns) / 1e6;
}

} // namespace torch_neuronx
