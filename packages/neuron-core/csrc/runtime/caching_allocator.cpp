#include "caching_allocator.h"

#include <bit>
#include <chrono>
#include <cstring>

#include <c10/util/Exception.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include "kernel_scope.h"

namespace torch_neuronx {

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSmallRequest = kMiB;          // below: small pool
constexpr size_t kUnroundedRequest = 16 * kMiB; // from here on: no size class
constexpr size_t kSmallSegment = 2 * kMiB;
constexpr size_t kLargeSegment = 20 * kMiB; // shared by requests below kSharedRequest
constexpr size_t kSharedRequest = 10 * kMiB;
constexpr size_t kSegmentRounding = 2 * kMiB;
constexpr size_t kAlignment = 64;
constexpr size_t kMinRemainder = 256; // a rest smaller than this stays with the block

// Four classes to a doubling, from 256 B: 256, 320, 384, 448, 512, 640, ...
struct SizeClass {
  int index;
  size_t bytes;
};

SizeClass size_class(size_t bytes) {
  if (bytes <= 256) {
    return {0, 256};
  }
  const int log = std::bit_width(bytes - 1) - 1;
  const size_t base = size_t{1} << log;
  const size_t step = base / 4;
  const size_t index = (bytes - 1 - base) / step;
  return {(log - 8) * 4 + static_cast<int>(index) + 1, base + (index + 1) * step};
}

size_t round_up(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

std::string format_bytes(size_t bytes) {
  char text[32];
  if (bytes >= 1024 * kMiB) {
    std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(bytes) / static_cast<double>(1024 * kMiB));
  } else if (bytes >= kMiB) {
    std::snprintf(text, sizeof(text), "%.2f MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
  } else {
    std::snprintf(text, sizeof(text), "%zu bytes", bytes);
  }
  return text;
}

int64_t now_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

void update(c10::CachingAllocator::StatArray& stats, Pool pool, size_t amount, bool increase) {
  auto& all = stats[0];
  auto& one = stats[pool == Pool::kSmall ? 1 : 2];
  if (increase) {
    all.increase(amount);
    one.increase(amount);
  } else {
    all.decrease(amount);
    one.decrease(amount);
  }
}

// A block that waits in a free list, or no longer does.
void count_cached(c10::CachingDeviceAllocator::DeviceStats& stats, const Block& block, bool waits) {
  update(stats.inactive_split_bytes, block.pool, block.size, waits);
  update(stats.inactive_split, block.pool, 1, waits);
}

template <class Function>
void for_each_stat(c10::CachingDeviceAllocator::DeviceStats& stats, Function&& function) {
  for (auto* group :
       {&stats.allocation,
        &stats.segment,
        &stats.active,
        &stats.inactive_split,
        &stats.allocated_bytes,
        &stats.reserved_bytes,
        &stats.active_bytes,
        &stats.inactive_split_bytes,
        &stats.requested_bytes}) {
    for (auto& stat : *group) {
      function(stat);
    }
  }
}

} // namespace

CachingAllocator::CachingAllocator() = default;

CachingAllocator& CachingAllocator::get() {
  static auto* instance = new CachingAllocator();
  return *instance;
}

CachingAllocator::Core& CachingAllocator::core(c10::DeviceIndex device) {
  std::call_once(cores_once_, [this] {
    const auto& opened = layout();
    for (int i = 0; i < opened.count; ++i) {
      cores_.push_back(std::make_unique<Core>());
      cores_.back()->limit = opened.hbm_bytes;
      cores_.back()->stats.max_split_size = static_cast<int64_t>(std::min<size_t>(opened.max_split_bytes, INT64_MAX));
    }
  });
  return *cores_[static_cast<size_t>(device)];
}

c10::DataPtr CachingAllocator::allocate(size_t bytes) {
  return allocate_on(bytes, current_device());
}

c10::DataPtr CachingAllocator::allocate_on(size_t bytes, c10::DeviceIndex device) {
  const c10::Device where(kNeuron, device);
  if (bytes == 0) {
    return {nullptr, nullptr, &release_block, where};
  }
  Block* block = take(bytes, device);
  return {block->ptr, block, &release_block, where};
}

Block* CachingAllocator::take(size_t bytes, c10::DeviceIndex device) {
  if (C10_UNLIKELY(in_bad_fork())) {
    raise_bad_fork();
  }
  auto& owner = core(device);
  std::shared_ptr<c10::GatheredContext> context;
  if (C10_UNLIKELY(history_.load(std::memory_order_relaxed)) && history_stacks_) {
    context = torch::CapturedTraceback::gather(true, true, false); // before the lock: it may take the GIL
  }
  std::lock_guard<std::mutex> lock(owner.mutex);
  Block* block = nullptr;
  if (bytes < kSmallRequest) {
    const auto rounded = size_class(bytes);
    block = take_small(owner, rounded.bytes, rounded.index, device);
  } else {
    block =
        take_large(owner, bytes < kUnroundedRequest ? size_class(bytes).bytes : round_up(bytes, kAlignment), device);
  }
  if (C10_UNLIKELY(block == nullptr)) {
    raise_out_of_memory(owner, bytes, device);
  }
  block->requested = bytes;
  block->in_use = true;
  block->context = std::move(context);
  ++block->segment->live;
  account(owner, block, true);
  if (C10_UNLIKELY(history_.load(std::memory_order_relaxed))) {
    trace(owner, "alloc", reinterpret_cast<size_t>(block->ptr), block->size, block->context);
  }
  return block;
}

Block* CachingAllocator::take_small(Core& owner, size_t size, int index, c10::DeviceIndex device) {
  Block*& head = owner.free_small[static_cast<size_t>(index)];
  if (C10_LIKELY(head != nullptr)) {
    Block* block = head;
    head = block->next_free;
    block->next_free = nullptr;
    count_cached(owner.stats, *block, false);
    return block;
  }
  if (owner.carving == nullptr || owner.carving->size - owner.carving->carved < size) {
    Segment* segment = map(owner, kSmallSegment, round_to_page(size), Pool::kSmall, device);
    if (segment == nullptr) {
      return nullptr;
    }
    owner.carving = segment;
  }
  auto* block = new Block();
  block->ptr = owner.carving->base + owner.carving->carved;
  block->size = size;
  block->size_class = index;
  block->device = device;
  block->pool = Pool::kSmall;
  block->segment = owner.carving;
  block->next = owner.carving->first;
  owner.carving->first = block;
  owner.carving->slot(block->ptr) = block;
  owner.carving->carved += size;
  return block;
}

Block* CachingAllocator::take_large(Core& owner, size_t size, c10::DeviceIndex device) {
  const auto& rules = layout();
  Block key;
  key.size = size;
  auto find = [&] {
    auto it = owner.free_large.lower_bound(&key);
    if (it == owner.free_large.end()) {
      return it;
    }
    const size_t found = (*it)->size;
    const bool fits = size < rules.max_split_bytes ? found < rules.max_split_bytes
                                                   : found - size <= rules.max_non_split_rounding_bytes;
    return fits ? it : owner.free_large.end();
  };
  auto it = find();
  Block* block = nullptr;
  if (it != owner.free_large.end()) {
    block = *it;
    owner.free_large.erase(it);
    count_cached(owner.stats, *block, false);
  } else {
    const size_t preferred = size < kSharedRequest ? kLargeSegment : round_up(size, kSegmentRounding);
    Segment* segment = map(owner, preferred, round_to_page(size), Pool::kLarge, device);
    if (segment == nullptr) {
      // map() gave back whole free segments; what is left of the others may hold a block that is large enough.
      it = find();
      if (it == owner.free_large.end()) {
        return nullptr;
      }
      block = *it;
      owner.free_large.erase(it);
      count_cached(owner.stats, *block, false);
    } else {
      block = new Block();
      block->ptr = segment->base;
      block->size = segment->size;
      block->device = device;
      block->pool = Pool::kLarge;
      block->segment = segment;
      segment->first = block;
    }
  }
  const size_t rest = block->size - size;
  const bool may_split = block->size < rules.max_split_bytes || rules.max_split_bytes == SIZE_MAX;
  if (may_split && rest >= kMinRemainder) {
    auto* remainder = new Block();
    remainder->ptr = block->ptr + size;
    remainder->size = rest;
    remainder->device = device;
    remainder->pool = Pool::kLarge;
    remainder->segment = block->segment;
    remainder->previous = block;
    remainder->next = block->next;
    if (block->next != nullptr) {
      block->next->previous = remainder;
    }
    block->next = remainder;
    block->size = size;
    owner.free_large.insert(remainder);
    count_cached(owner.stats, *remainder, true);
  }
  block->segment->slot(block->ptr) = block;
  return block;
}

Segment* CachingAllocator::map(Core& owner, size_t preferred, size_t least, Pool pool, c10::DeviceIndex device) {
  auto try_map = [&](size_t bytes) -> Segment* {
    const auto reserved = static_cast<size_t>(owner.stats.reserved_bytes[0].current);
    if (bytes > owner.limit || reserved > owner.limit - bytes) {
      return nullptr;
    }
    Segment* segment = map_segment(bytes, pool, device);
    if (segment == nullptr) {
      return nullptr;
    }
    owner.segments.insert(segment);
    update(owner.stats.reserved_bytes, pool, bytes, true);
    update(owner.stats.segment, pool, 1, true);
    ++owner.stats.num_device_alloc;
    if (history_.load(std::memory_order_relaxed)) {
      trace(owner, "segment_alloc", reinterpret_cast<size_t>(segment->base), bytes, nullptr);
    }
    return segment;
  };
  if (Segment* segment = try_map(preferred)) {
    return segment;
  }
  ++owner.stats.num_alloc_retries;
  release_cached(owner);
  if (Segment* segment = try_map(preferred)) {
    return segment;
  }
  return least < preferred ? try_map(least) : nullptr;
}

void CachingAllocator::account(Core& owner, Block* block, bool taken) {
  auto& stats = owner.stats;
  update(stats.allocation, block->pool, 1, taken);
  update(stats.allocated_bytes, block->pool, block->size, taken);
  update(stats.active, block->pool, 1, taken);
  update(stats.active_bytes, block->pool, block->size, taken);
  update(stats.requested_bytes, block->pool, block->requested, taken);
}

Block* CachingAllocator::take_foreign(void* ptr, size_t bytes, c10::DeviceIndex device, c10::DataPtr&& data) {
  auto& owner = core(device);
  std::unique_lock<std::mutex> lock(owner.mutex);
  auto fits = [&] {
    const auto reserved = static_cast<size_t>(owner.stats.reserved_bytes[0].current);
    return bytes <= owner.limit && reserved <= owner.limit - bytes;
  };
  if (!fits()) {
    release_cached(owner);
    if (!fits()) {
      raise_out_of_memory(owner, bytes, device);
    }
  }
  auto* block = new Block();
  block->ptr = static_cast<char*>(ptr);
  block->size = bytes;
  block->requested = bytes;
  block->device = device;
  block->pool = Pool::kForeign;
  block->in_use = true;
  block->foreign = std::move(data);
  owner.foreign.insert(block);
  update(owner.stats.reserved_bytes, block->pool, bytes, true);
  account(owner, block, true);
  return block;
}

void release_block(void* block) {
  if (block != nullptr) {
    CachingAllocator::get().free_block(static_cast<Block*>(block));
  }
}

void CachingAllocator::free_block(Block* block) {
  if (C10_UNLIKELY(in_bad_fork())) {
    return; // a thread that does not exist in this child may hold the lock; the pages are the parent's anyway
  }
  if (auto* twin = block->twin.exchange(nullptr, std::memory_order_acq_rel)) {
    c10::intrusive_ptr<c10::StorageImpl>::reclaim(twin).reset();
  }
  auto& owner = core(block->device);
  c10::DataPtr foreign; // released outside the lock: its deleter is somebody else's code
  std::shared_ptr<c10::GatheredContext> context;
  {
    std::lock_guard<std::mutex> lock(owner.mutex);
    account(owner, block, false);
    block->in_use = false;
    context = std::move(block->context);
    if (C10_UNLIKELY(history_.load(std::memory_order_relaxed))) {
      trace(owner, "free_requested", reinterpret_cast<size_t>(block->ptr), block->size, context);
      trace(owner, "free_completed", reinterpret_cast<size_t>(block->ptr), block->size, context);
    }
    if (block->pool == Pool::kForeign) {
      update(owner.stats.reserved_bytes, block->pool, block->size, false);
      owner.foreign.erase(block);
      foreign = std::move(block->foreign);
      delete block;
      return;
    }
    --block->segment->live;
    if (block->pool == Pool::kSmall) {
      Block*& head = owner.free_small[static_cast<size_t>(block->size_class)];
      block->next_free = head;
      head = block;
      count_cached(owner.stats, *block, true);
    } else {
      free_large_block(owner, block);
    }
  }
}

void CachingAllocator::free_large_block(Core& owner, Block* block) {
  auto merge_into_lower = [&](Block* lower, Block* upper) {
    lower->size += upper->size;
    lower->next = upper->next;
    if (upper->next != nullptr) {
      upper->next->previous = lower;
    }
    delete upper;
  };
  auto forget = [&](Block* free) {
    owner.free_large.erase(free);
    count_cached(owner.stats, *free, false);
  };
  if (block->next != nullptr && !block->next->in_use) {
    forget(block->next);
    merge_into_lower(block, block->next);
  }
  if (block->previous != nullptr && !block->previous->in_use) {
    Block* lower = block->previous;
    forget(lower);
    merge_into_lower(lower, block);
    block = lower;
  }
  owner.free_large.insert(block);
  count_cached(owner.stats, *block, true);
}

void CachingAllocator::release_cached(Core& owner) {
  // Small blocks of dead segments leave the free lists first.
  for (auto& head : owner.free_small) {
    Block** link = &head;
    while (*link != nullptr) {
      Block* block = *link;
      if (block->segment->live == 0) {
        *link = block->next_free;
        count_cached(owner.stats, *block, false);
      } else {
        link = &block->next_free;
      }
    }
  }
  for (auto it = owner.segments.begin(); it != owner.segments.end();) {
    Segment* segment = *it;
    if (segment->live != 0) {
      ++it;
      continue;
    }
    for (Block* block = segment->first; block != nullptr;) {
      Block* next = block->next;
      if (segment->pool == Pool::kLarge && owner.free_large.erase(block) != 0) {
        count_cached(owner.stats, *block, false);
      }
      delete block;
      block = next;
    }
    if (owner.carving == segment) {
      owner.carving = nullptr;
    }
    if (history_.load(std::memory_order_relaxed)) {
      trace(owner, "segment_free", reinterpret_cast<size_t>(segment->base), segment->size, nullptr);
    }
    update(owner.stats.reserved_bytes, segment->pool, segment->size, false);
    update(owner.stats.segment, segment->pool, 1, false);
    ++owner.stats.num_device_free;
    unmap_segment(segment);
    it = owner.segments.erase(it);
  }
}

void CachingAllocator::raise_out_of_memory(Core& owner, size_t bytes, c10::DeviceIndex device) {
  ++owner.stats.num_ooms;
  const auto allocated = static_cast<size_t>(owner.stats.allocated_bytes[0].current);
  const auto reserved = static_cast<size_t>(owner.stats.reserved_bytes[0].current);
  const size_t free = owner.limit > reserved ? owner.limit - reserved : 0;
  if (history_.load(std::memory_order_relaxed)) {
    trace(owner, "oom", free, bytes, nullptr);
  }
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "Neuron out of memory: tried to allocate ",
      format_bytes(bytes),
      " on neuron:",
      static_cast<int>(device),
      ", whose capacity is ",
      format_bytes(owner.limit),
      ". Allocated: ",
      format_bytes(allocated),
      ", reserved: ",
      format_bytes(reserved),
      ", free: ",
      format_bytes(free),
      ". Free tensors, make the batch smaller, or, if much is reserved but not allocated, set ",
      "TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG=kMaxSplitSizeBytes=268435456 against fragmentation.");
}

c10::DeleterFnPtr CachingAllocator::raw_deleter() const {
  return nullptr; // the context is a block, not the pointer
}

void CachingAllocator::copy_data(void* destination, const void* source, size_t bytes) const {
  const KernelScope scope(kernel_device() >= 0 ? kernel_device() : current_device());
  std::memcpy(destination, source, bytes);
}

bool CachingAllocator::initialized() {
  return is_initialized();
}

void CachingAllocator::emptyCache(c10::MempoolId_t pool) {
  (void)pool;
  if (!is_initialized()) {
    return;
  }
  for (int i = 0; i < device_count(); ++i) {
    auto& owner = core(static_cast<c10::DeviceIndex>(i));
    std::lock_guard<std::mutex> lock(owner.mutex);
    release_cached(owner);
  }
}

void CachingAllocator::recordStream(const c10::DataPtr& data, c10::Stream stream) {
  // Work on the emulator is complete when the call that queued it returns, so a free block is free on every stream.
  (void)data;
  TORCH_CHECK(
      stream.device_type() == kNeuron,
      "record_stream expects a stream of device neuron, not of ",
      stream.device(),
      ".");
}

c10::CachingDeviceAllocator::DeviceStats CachingAllocator::getDeviceStats(c10::DeviceIndex device) {
  if (!is_initialized()) {
    return {};
  }
  auto& owner = core(checked_index(device));
  std::lock_guard<std::mutex> lock(owner.mutex);
  return owner.stats;
}

void CachingAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  auto& owner = core(checked_index(device));
  std::lock_guard<std::mutex> lock(owner.mutex);
  auto& stats = owner.stats;
  for_each_stat(stats, [](auto& stat) { stat.reset_accumulated(); });
  stats.num_alloc_retries = 0;
  stats.num_ooms = 0;
  stats.num_device_alloc = 0;
  stats.num_device_free = 0;
}

void CachingAllocator::resetPeakStats(c10::DeviceIndex device) {
  auto& owner = core(checked_index(device));
  std::lock_guard<std::mutex> lock(owner.mutex);
  auto& stats = owner.stats;
  for_each_stat(stats, [](auto& stat) { stat.reset_peak(); });
}

std::pair<size_t, size_t> CachingAllocator::getMemoryInfo(c10::DeviceIndex device) {
  auto& owner = core(checked_index(device));
  std::lock_guard<std::mutex> lock(owner.mutex);
  const auto reserved = static_cast<size_t>(owner.stats.reserved_bytes[0].current);
  return {owner.limit > reserved ? owner.limit - reserved : 0, owner.limit};
}

void CachingAllocator::set_limit(c10::DeviceIndex device, size_t bytes) {
  auto& owner = core(checked_index(device));
  std::lock_guard<std::mutex> lock(owner.mutex);
  owner.limit = bytes;
}

size_t CachingAllocator::limit(c10::DeviceIndex device) {
  auto& owner = core(checked_index(device));
  std::lock_guard<std::mutex> lock(owner.mutex);
  return owner.limit;
}

void CachingAllocator::trace(
    Core& owner, const char* action, size_t address, size_t size, std::shared_ptr<c10::GatheredContext> context) {
  if (history_entries_ == 0) {
    return;
  }
  if (owner.trace.size() >= history_entries_) {
    owner.trace.pop_front();
  }
  owner.trace.push_back({action, address, size, now_us(), std::move(context)});
}

void CachingAllocator::record_history(bool enabled, size_t max_entries, bool stacks) {
  ensure_initialized();
  for (int i = 0; i < device_count(); ++i) {
    core(static_cast<c10::DeviceIndex>(i)).mutex.lock();
  }
  history_stacks_ = stacks;
  history_entries_ = enabled ? max_entries : 0;
  history_.store(enabled);
  for (int i = 0; i < device_count(); ++i) {
    auto& owner = core(static_cast<c10::DeviceIndex>(i));
    owner.trace.clear();
    owner.mutex.unlock();
  }
}

MemorySnapshot CachingAllocator::snapshot() {
  MemorySnapshot result;
  ensure_initialized();
  for (int i = 0; i < device_count(); ++i) {
    const auto device = static_cast<c10::DeviceIndex>(i);
    auto& owner = core(device);
    std::lock_guard<std::mutex> lock(owner.mutex);
    auto add = [&](const Block& block, SegmentSnapshot& out) {
      out.blocks.push_back(
          {reinterpret_cast<size_t>(block.ptr),
           block.size,
           block.in_use ? block.requested : 0,
           block.in_use,
           block.context});
      out.allocated_size += block.in_use ? block.size : 0;
      out.requested_size += block.in_use ? block.requested : 0;
    };
    for (const Segment* segment : owner.segments) {
      SegmentSnapshot out{
          device, reinterpret_cast<size_t>(segment->base), segment->size, 0, 0, segment->pool == Pool::kLarge, {}};
      for (const Block* block = segment->first; block != nullptr; block = block->next) {
        add(*block, out);
      }
      if (segment->pool == Pool::kSmall) {
        std::reverse(out.blocks.begin(), out.blocks.end()); // carved upwards, linked downwards
        if (segment->carved < segment->size) {
          out.blocks.push_back(
              {reinterpret_cast<size_t>(segment->base) + segment->carved,
               segment->size - segment->carved,
               0,
               false,
               nullptr});
        }
      }
      result.segments.push_back(std::move(out));
    }
    for (const Block* block : owner.foreign) {
      SegmentSnapshot out{device, reinterpret_cast<size_t>(block->ptr), block->size, 0, 0, true, {}};
      add(*block, out);
      result.segments.push_back(std::move(out));
    }
    result.traces.emplace_back(owner.trace.begin(), owner.trace.end());
  }
  return result;
}

c10::DeviceIndex CachingAllocator::device_of(const void* address) {
  if (const Segment* segment = segment_of(address)) {
    return segment->device;
  }
  const auto* wanted = static_cast<const char*>(address);
  for (int i = 0; is_initialized() && i < device_count(); ++i) {
    auto& owner = core(static_cast<c10::DeviceIndex>(i));
    std::lock_guard<std::mutex> lock(owner.mutex);
    for (const Block* block : owner.foreign) {
      if (wanted >= block->ptr && wanted < block->ptr + block->size) {
        return static_cast<c10::DeviceIndex>(i);
      }
    }
  }
  return -1;
}

} // namespace torch_neuronx
