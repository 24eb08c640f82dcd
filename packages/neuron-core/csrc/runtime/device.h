// The cores this process sees, which one is current, and the one switch that says whether eager calls may take the fast way.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/macros/Macros.h>

namespace torch_neuronx {

constexpr c10::DeviceType kNeuron = c10::DeviceType::PrivateUse1;

// What the process was given. Resolved once, on first use of the device.
struct DeviceLayout {
  int count = 0;
  size_t hbm_bytes = 0;                            // per core
  bool protect = false;                            // device memory unreadable outside kernels
  size_t max_split_bytes = SIZE_MAX;               // larger cached blocks are never split
  size_t max_non_split_rounding_bytes = 20u << 20; // slack when such a block is reused whole
};

// Reasons for an eager call to leave the unboxed template for the boxed path. Zero on the hot path.
enum ModeBit : uint32_t {
  kModeTrackOps = 1u << 0,
  kModeStrictInt64 = 1u << 1,
  kModeForked = 1u << 2,
};
extern C10_EXPORT std::atomic<uint32_t> mode_bits;
void set_mode(ModeBit bit, bool on);

// Installed by the bindings: counts cores without opening anything (0 on a bad configuration), and opens the device.
void set_core_counter(std::function<int()> counter);
void set_initializer(std::function<void()> initializer);

// Called by the initializer; a second call is an error.
void initialize(const DeviceLayout& layout);
bool is_initialized() noexcept;
// Opens the device if it is not open. Raises what the initializer raises, and in a forked child.
void ensure_initialized();
const DeviceLayout& layout();

c10::DeviceIndex device_count() noexcept;
c10::DeviceIndex current_device() noexcept;
void set_current_device(c10::DeviceIndex index); // raises for a core the process does not see
void set_current_device_unchecked(c10::DeviceIndex index) noexcept;
c10::DeviceIndex exchange_device(c10::DeviceIndex index);
// A negative index means the current core. Raises for a core the process does not see.
c10::DeviceIndex checked_index(int64_t index);

bool in_bad_fork() noexcept;
[[noreturn]] void raise_bad_fork();

} // namespace torch_neuronx
