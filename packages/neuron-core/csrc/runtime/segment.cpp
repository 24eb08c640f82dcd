#include "segment.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <unordered_set>

#include <sys/mman.h>
#include <unistd.h>

namespace torch_neuronx {

namespace {

// ---- the directory: address >> 21 -> segment, two levels of 2^13 entries for 47-bit addresses -----------------------

constexpr size_t kLevelBits = 13;
constexpr size_t kLevelSize = size_t{1} << kLevelBits;
using Leaf = std::array<std::atomic<Segment*>, kLevelSize>;
std::array<std::atomic<Leaf*>, kLevelSize> directory;

struct Position {
  size_t top, low;
};

Position position(const void* address) {
  const size_t grain = reinterpret_cast<uintptr_t>(address) >> kSegmentAlignmentLog2;
  return {(grain >> kLevelBits) & (kLevelSize - 1), grain & (kLevelSize - 1)};
}

void enter(Segment* segment, Segment* value) {
  for (size_t offset = 0; offset < segment->size; offset += size_t{1} << kSegmentAlignmentLog2) {
    const auto at = position(segment->base + offset);
    Leaf* leaf = directory[at.top].load(std::memory_order_acquire);
    if (leaf == nullptr) {
      leaf = new Leaf(); // under the lock of segments(); never freed, readers take no lock
      directory[at.top].store(leaf, std::memory_order_release);
    }
    (*leaf)[at.low].store(value, std::memory_order_release);
  }
}

// ---- protection -----------------------------------------------------------------------------------------------------

std::atomic<bool> protect{false};

struct Segments {
  std::mutex mutex;
  std::unordered_set<Segment*> mapped;
  int open = 0;
};

Segments& segments() {
  static auto* instance = new Segments(); // outlives static destructors that still free tensors
  return *instance;
}

struct sigaction previous_action;

void on_segv(int signal, siginfo_t* info, void* context) {
  (void)context;
  if (segment_of(info->si_addr) != nullptr) {
    char text[256];
    const int length = std::snprintf(
        text,
        sizeof(text),
        "torch_neuronx: host code touched Neuron device memory at %p outside a kernel "
        "(TORCH_NEURONX_EMULATOR_PROTECT is on). Copy the tensor to the CPU first.\n",
        info->si_addr);
    if (length > 0) {
      const auto written = write(STDERR_FILENO, text, static_cast<size_t>(length));
      (void)written;
    }
  }
  // Hand over to whoever was there (faulthandler, a debugger, the default): returning re-executes the access.
  sigaction(signal, &previous_action, nullptr);
  if (info->si_code <= 0) {
    raise(signal); // sent by kill() or raise(): there is no access to repeat
  }
}

} // namespace

size_t round_to_page(size_t bytes) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

Segment* map_segment(size_t bytes, Pool pool, c10::DeviceIndex device) {
  constexpr size_t kAlignment = size_t{1} << kSegmentAlignmentLog2;
  auto& all = segments();
  std::lock_guard<std::mutex> lock(all.mutex);
  const int access = protect.load() && all.open == 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* mapped = mmap(nullptr, bytes + kAlignment, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return nullptr;
  }
  auto* start = static_cast<char*>(mapped);
  const size_t skip = (kAlignment - reinterpret_cast<uintptr_t>(start) % kAlignment) % kAlignment;
  if (skip > 0) {
    munmap(start, skip);
  }
  if (skip < kAlignment) {
    munmap(start + skip + bytes, kAlignment - skip);
  }
  auto segment = std::make_unique<Segment>();
  segment->base = start + skip;
  segment->size = bytes;
  segment->device = device;
  segment->pool = pool;
  segment->slot_log2 = pool == Pool::kSmall ? 8 : 20;
  segment->slots = std::make_unique<Block*[]>((bytes >> segment->slot_log2) + 1);
  enter(segment.get(), segment.get());
  all.mapped.insert(segment.get());
  return segment.release();
}

void unmap_segment(Segment* segment) {
  auto& all = segments();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.mapped.erase(segment);
  enter(segment, nullptr);
  munmap(segment->base, segment->size);
  delete segment;
}

Segment* segment_of(const void* address) noexcept {
  const auto at = position(address);
  const Leaf* leaf = directory[at.top].load(std::memory_order_acquire);
  Segment* segment = leaf == nullptr ? nullptr : (*leaf)[at.low].load(std::memory_order_acquire);
  const auto* wanted = static_cast<const char*>(address);
  return segment != nullptr && wanted >= segment->base && wanted < segment->base + segment->size ? segment : nullptr;
}

void enable_protection() {
  if (protect.exchange(true)) {
    return;
  }
  struct sigaction action{};
  action.sa_sigaction = on_segv;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous_action);
}

bool protection_enabled() noexcept {
  return protect.load(std::memory_order_relaxed);
}

void open_device_memory() {
  auto& all = segments();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (all.open++ == 0) {
    for (const Segment* segment : all.mapped) {
      mprotect(segment->base, segment->size, PROT_READ | PROT_WRITE);
    }
  }
}

void close_device_memory() {
  auto& all = segments();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (--all.open == 0) {
    for (const Segment* segment : all.mapped) {
      mprotect(segment->base, segment->size, PROT_NONE);
    }
  }
}

} // namespace torch_neuronx
