#include "host_allocator.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include <c10/util/Exception.h>

#include "device.h"

namespace torch_neuronx {

namespace {

// The emulator copies with memcpy, so "pinned" is a promise about the address, not about pages: the memory is plain,
// page-aligned, and known to is_pinned().
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) {
      return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    }
    constexpr size_t kPage = 4096;
    void* address = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    TORCH_CHECK(address != nullptr, "The host has no memory left to pin ", bytes, " bytes.");
    std::lock_guard<std::mutex> lock(mutex_);
    live_.emplace(static_cast<const char*>(address), bytes);
    stats_.allocations.increase(1);
    stats_.allocated_bytes.increase(bytes);
    return {address, address, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
  bool record_event(void* address, void* context, c10::Stream stream) override {
    (void)context;
    (void)stream; // copies are complete when the call returns
    return contains(address);
  }
  void empty_cache() override {} // nothing is cached: malloc does that
  at::HostStats get_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return stats_;
  }
  void reset_accumulated_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.allocations.reset_accumulated();
    stats_.allocated_bytes.reset_accumulated();
  }
  void reset_peak_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.allocations.reset_peak();
    stats_.allocated_bytes.reset_peak();
  }
  bool contains(const void* address) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto* wanted = static_cast<const char*>(address);
    auto it = live_.upper_bound(wanted);
    if (it == live_.begin()) {
      return false;
    }
    --it;
    return wanted < it->first + it->second;
  }
  static PinnedAllocator& get() {
    static auto* instance = new PinnedAllocator();
    return *instance;
  }

 private:
  static void release(void* address) {
    if (address == nullptr) {
      return;
    }
    auto& self = get();
    {
      std::lock_guard<std::mutex> lock(self.mutex_);
      auto it = self.live_.find(static_cast<const char*>(address));
      self.stats_.allocations.decrease(1);
      self.stats_.allocated_bytes.decrease(it->second);
      self.live_.erase(it);
    }
    std::free(address);
  }

  std::mutex mutex_;
  std::map<const char*, size_t> live_;
  at::HostStats stats_;
};

} // namespace

at::HostAllocator& host_allocator() {
  return PinnedAllocator::get();
}

bool is_pinned(const void* address) {
  return PinnedAllocator::get().contains(address);
}

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, &PinnedAllocator::get())

} // namespace torch_neuronx
