#include "device.h"

#include <mutex>

#include <pthread.h>

#include <c10/util/Exception.h>

#include "error.h"

namespace torch_neuronx {

std::atomic<uint32_t> mode_bits{0};

namespace {

std::atomic<bool> opened{false};
std::atomic<bool> forked{false};
DeviceLayout opened_layout;
thread_local c10::DeviceIndex current = 0;

std::function<int()>& core_counter() {
  static std::function<int()> counter;
  return counter;
}

std::function<void()>& initializer() {
  static std::function<void()> function;
  return function;
}

// The emulator's pools are plain memory and survive a fork, but a real core does not: both answer alike.
void after_fork_in_child() {
  if (opened.load(std::memory_order_relaxed)) {
    forked.store(true, std::memory_order_relaxed);
    mode_bits.fetch_or(kModeForked, std::memory_order_relaxed);
  }
}

} // namespace

void set_mode(ModeBit bit, bool on) {
  if (on) {
    mode_bits.fetch_or(bit, std::memory_order_relaxed);
  } else {
    mode_bits.fetch_and(~static_cast<uint32_t>(bit), std::memory_order_relaxed);
  }
}

void set_core_counter(std::function<int()> counter) {
  core_counter() = std::move(counter);
}

void set_initializer(std::function<void()> function) {
  initializer() = std::move(function);
}

void initialize(const DeviceLayout& layout) {
  TORCH_CHECK(!opened.load(), "The neuron device is already open in this process.");
  TORCH_CHECK(layout.count > 0, "No Neuron core is visible to this process.");
  opened_layout = layout;
  static const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  (void)registered;
  opened.store(true, std::memory_order_release);
}

bool is_initialized() noexcept {
  return opened.load(std::memory_order_acquire) && !forked.load(std::memory_order_relaxed);
}

void ensure_initialized() {
  if (C10_LIKELY(is_initialized())) {
    return;
  }
  if (in_bad_fork()) {
    raise_bad_fork();
  }
  TORCH_CHECK(
      initializer() != nullptr, "torch_neuronx is not loaded: import torch_neuronx before using device neuron.");
  initializer()();
}

const DeviceLayout& layout() {
  ensure_initialized();
  return opened_layout;
}

c10::DeviceIndex device_count() noexcept {
  if (opened.load(std::memory_order_acquire)) {
    return static_cast<c10::DeviceIndex>(opened_layout.count);
  }
  return core_counter() ? static_cast<c10::DeviceIndex>(core_counter()()) : c10::DeviceIndex{0};
}

c10::DeviceIndex current_device() noexcept {
  return current;
}

c10::DeviceIndex checked_index(int64_t index) {
  if (index < 0) {
    return current;
  }
  if (C10_UNLIKELY(index >= device_count())) {
    ensure_initialized(); // a bad configuration says so itself
    const auto count = std::to_string(device_count());
    raise_error(
        ErrorKind::kDevice,
        "There is no device neuron:" + std::to_string(index) + ": this process sees " +
            (device_count() == 1 ? std::string("one Neuron core, neuron:0")
                                 : count + " Neuron cores, neuron:0 to neuron:" + std::to_string(device_count() - 1)) +
            ". Use one of those, or change NEURON_RT_VISIBLE_CORES or NEURON_RT_NUM_CORES before the process starts.");
  }
  return static_cast<c10::DeviceIndex>(index);
}

void set_current_device(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0, "A Neuron core has an index of 0 or more, not ", static_cast<int>(index), ".");
  current = checked_index(index);
}

void set_current_device_unchecked(c10::DeviceIndex index) noexcept {
  if (index >= 0) {
    current = index;
  }
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  const auto previous = current;
  if (index >= 0) {
    set_current_device(index);
  }
  return previous;
}

bool in_bad_fork() noexcept {
  return forked.load(std::memory_order_relaxed);
}

void raise_bad_fork() {
  raise_error(
      ErrorKind::kDevice,
      "Cannot use device neuron in a forked child, because the parent process had already opened it. Start the child "
      "with "
      "multiprocessing's 'spawn' or 'forkserver' method, or fork before the first use of the device.");
}

} // namespace torch_neuronx
