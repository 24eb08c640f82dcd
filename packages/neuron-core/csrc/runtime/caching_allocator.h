// The caching segment allocator of device memory.
//
// Segments come from the runtime and are cut into blocks; a freed block stays cached. Two pools: requests below 1 MiB
// (small) and the rest (large). Requests below 16 MiB round up to a size class, four to a doubling, the least 256 B;
// larger ones only to the 64 B that alignment asks for. At all times reserved >= allocated >= active.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_set>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include "device.h"
#include "segment.h"

namespace torch_neuronx {

struct Block {
  char* ptr = nullptr;
  size_t size = 0; // after rounding
  size_t requested = 0;
  c10::DeviceIndex device = 0;
  Pool pool = Pool::kSmall;
  int size_class = -1;
  bool in_use = false;
  Segment* segment = nullptr;
  Block* next = nullptr;                         // higher neighbour in the segment
  Block* previous = nullptr;                     // lower neighbour in the segment (large pool)
  Block* next_free = nullptr;                    // small pool's free list
  c10::DataPtr foreign;                          // memory that somebody else allocated, adopted as ours
  std::atomic<c10::StorageImpl*> twin{nullptr};  // owned: the CPU storage over the same bytes, made on first use
  std::shared_ptr<c10::GatheredContext> context; // where it was allocated, when history is recorded
};

struct BlockSnapshot {
  size_t address, size, requested;
  bool in_use;
  std::shared_ptr<c10::GatheredContext> context;
};
struct SegmentSnapshot {
  c10::DeviceIndex device;
  size_t address, total_size, allocated_size, requested_size;
  bool is_large;
  std::vector<BlockSnapshot> blocks;
};
struct TraceRecord {
  const char* action;
  size_t address, size;
  int64_t time_us;
  std::shared_ptr<c10::GatheredContext> context;
};
struct MemorySnapshot {
  std::vector<SegmentSnapshot> segments;
  std::vector<std::vector<TraceRecord>> traces; // one list per core
};

class CachingAllocator final : public c10::DeviceAllocator {
 public:
  // Never destroyed: tensors may outlive static destructors.
  static CachingAllocator& get();

  // On the current core.
  c10::DataPtr allocate(size_t bytes) override;
  c10::DataPtr allocate_on(size_t bytes, c10::DeviceIndex device);
  // A block, for callers that wrap it themselves. Raises torch.OutOfMemoryError.
  Block* take(size_t bytes, c10::DeviceIndex device);
  // Accounts memory that somebody else allocated as a block of the core; `data` is released with the block.
  Block* take_foreign(void* ptr, size_t bytes, c10::DeviceIndex device, c10::DataPtr&& data);
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* destination, const void* source, size_t bytes) const override;

  bool initialized() override;
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override; // free, total

  // Lowers or raises what a core may reserve. Bytes already reserved stay.
  void set_limit(c10::DeviceIndex device, size_t bytes);
  size_t limit(c10::DeviceIndex device);

  // History: at most `max_entries` per core, with Python frames when `stacks`.
  void record_history(bool enabled, size_t max_entries, bool stacks);
  MemorySnapshot snapshot();
  // The core that holds `address`, or -1.
  c10::DeviceIndex device_of(const void* address);

 private:
  struct ByAddressInSize {
    bool operator()(const Block* a, const Block* b) const {
      return a->size != b->size ? a->size < b->size : a->ptr < b->ptr;
    }
  };
  static constexpr int kSmallClasses = 52;
  struct Core {
    std::mutex mutex;
    std::array<Block*, kSmallClasses> free_small{};
    Segment* carving = nullptr;
    std::set<Block*, ByAddressInSize> free_large;
    std::unordered_set<Segment*> segments;
    c10::CachingDeviceAllocator::DeviceStats stats;
    size_t limit = 0;
    std::deque<TraceRecord> trace;
    std::unordered_set<Block*> foreign;
  };

  CachingAllocator();
  friend void release_block(void* block);

  Core& core(c10::DeviceIndex device);
  Block* take_small(Core& core, size_t size, int size_class, c10::DeviceIndex device);
  Block* take_large(Core& core, size_t size, c10::DeviceIndex device);
  Segment* map(Core& core, size_t preferred, size_t least, Pool pool, c10::DeviceIndex device);
  void free_block(Block* block);
  void free_large_block(Core& core, Block* block);
  void release_cached(Core& core);
  void account(Core& core, Block* block, bool taken);
  void trace(
      Core& core, const char* action, size_t address, size_t size, std::shared_ptr<c10::GatheredContext> context);
  [[noreturn]] void raise_out_of_memory(Core& core, size_t bytes, c10::DeviceIndex device);

  std::vector<std::unique_ptr<Core>> cores_;
  std::once_flag cores_once_;
  std::atomic<bool> history_{false};
  bool history_stacks_ = false;
  size_t history_entries_ = 0;
};

// The deleter of every DataPtr that owns a block.
void release_block(void* block);

// Whether the bytes are a block of ours, which is what lets a CPU twin be cached with them.
inline bool is_device_block(const c10::DataPtr& data) {
  return data.get_deleter() == &release_block && data.get_context() != nullptr;
}
inline Block* block_of(const c10::DataPtr& data) {
  return static_cast<Block*>(data.get_context());
}

// The block in use that starts at `address`, or nullptr for memory that is not a pool's.
inline Block* block_at(const void* address) {
  Segment* segment = segment_of(address);
  return segment == nullptr ? nullptr : segment->slot(static_cast<const char*>(address));
}

} // namespace torch_neuronx
