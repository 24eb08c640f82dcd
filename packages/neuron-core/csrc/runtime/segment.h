// Device memory of the emulator: whole segments of host memory, the directory that finds a segment by address, and the
// rule that the memory is only readable inside kernels when protection is on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <c10/core/Device.h>

namespace torch_neuronx {

struct Block;
enum class Pool : uint8_t { kSmall, kLarge, kForeign };

constexpr int kSegmentAlignmentLog2 = 21; // no two segments share 2 MiB of addresses: the directory's grain

struct Segment {
  char* base = nullptr;
  size_t size = 0;
  c10::DeviceIndex device = 0;
  Pool pool = Pool::kSmall;
  size_t carved = 0;      // small pool: bytes handed out once
  size_t live = 0;        // blocks in use
  Block* first = nullptr; // large pool: lowest address; small pool: last carved. Neighbours follow through Block::next.

  // Blocks by where they start. A block of the small pool has at least 256 B, one in use of the large pool 1 MiB, so no
  // two of them share a slot.
  int slot_log2 = 8;
  std::unique_ptr<Block*[]> slots;
  Block*& slot(const char* address) {
    return slots[static_cast<size_t>(address - base) >> slot_log2];
  }
};

// Maps zeroed memory for `bytes` (a multiple of the page size). nullptr when the host has no more.
Segment* map_segment(size_t bytes, Pool pool, c10::DeviceIndex device);
void unmap_segment(Segment* segment);
// The segment that holds an address, or nullptr. Takes no lock; async-signal-safe.
Segment* segment_of(const void* address) noexcept;

void enable_protection();
bool protection_enabled() noexcept;
// Readable and writable while at least one is open, in any thread.
void open_device_memory();
void close_device_memory();

size_t round_to_page(size_t bytes);

} // namespace torch_neuronx
