#include "board.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <random>
#include <sstream>

namespace torch_neuronx::distributed {
namespace {

constexpr int64_t kSend = 1;
constexpr int64_t kReceive = 2;
/// Words of a transfer: number, kind, peer, tag, number among its like, bytes.
constexpr size_t kTransferWords = 6;
/// Words of a call before those of an exchange: number, operation, dtype, count, root, reduction.
constexpr size_t kCallWords = 6;

/// What processes have in common that can open each other's descriptors by their process ids.
std::string this_host() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 64> space{};
  const auto length = readlink("/proc/self/ns/pid", space.data(), space.size() - 1);
  return boot + (length > 0 ? std::string(space.data(), static_cast<size_t>(length)) : std::string());
}

/// A reader takes what is between two equal numbers, so that nothing of what follows may be seen before this zero.
void begin(std::atomic<int64_t>* slot) {
  slot[0].store(0);
  std::atomic_thread_fence(std::memory_order_release);
}

} // namespace

Board::Board(c10d::Store& store, const std::string& key, int rank, int size) : rank_(rank), size_(size) {
  if (size < 2) {
    return;
  }
  const auto place = key + this_host();
  const bool first = store.add(place + "/first", 1) == 1;
  int64_t mark = 0;
  if (first) {
    descriptor_ = memfd_create("neuron-board", MFD_CLOEXEC);
    mark = static_cast<int64_t>(std::random_device()()) + 1;
  } else {
    std::string path;
    std::istringstream(store.get_to_str(place)) >> mark >> path;
    descriptor_ = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  }
  map(first, mark);
  if (!first) {
    hang_up();
  } else {
    // Others open it while this process holds it; the memory is gone with the last process that has it.
    store.set(place, c10::str(mark, " /proc/", getpid(), "/fd/", descriptor_));
  }
}

void Board::map(bool first, int64_t mark) {
  const auto bytes = static_cast<off_t>(bytes_of_all());
  struct stat found{};
  if (descriptor_ < 0 || (first && ftruncate(descriptor_, bytes) != 0) || fstat(descriptor_, &found) != 0 ||
      found.st_size != bytes) {
    return;
  }
  auto* memory = mmap(nullptr, bytes_of_all(), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) {
    return;
  }
  words_ = static_cast<Word*>(memory); // zeros, which no rank posts as a number
  if (first) {
    words_->store(mark);
  } else if (words_->load() != mark) { // what the store says is of a process that is gone, or of a group
    munmap(words_, bytes_of_all());
    words_ = nullptr;
  }
}

Board::~Board() {
  if (words_ != nullptr) {
    munmap(words_, bytes_of_all());
  }
  hang_up();
}

void Board::hang_up() {
  if (descriptor_ >= 0) {
    close(descriptor_);
    descriptor_ = -1;
  }
}

size_t Board::words_of_rank() const {
  return 1 + kKept * (kCallWords + 2 * static_cast<size_t>(size_)) + kKept * kTransferWords;
}

size_t Board::bytes_of_all() const {
  return (1 + static_cast<size_t>(size_) * words_of_rank()) * sizeof(Word);
}

Board::Word* Board::takes_from_any(int rank) const {
  return words_ + 1 + static_cast<size_t>(rank) * words_of_rank();
}

Board::Word* Board::call_slot(int rank, uint64_t number) const {
  return takes_from_any(rank) + 1 + (number % kKept) * (kCallWords + 2 * static_cast<size_t>(size_));
}

Board::Word* Board::transfer_slot(int rank, uint64_t number) const {
  return call_slot(rank, 0) + kKept * (kCallWords + 2 * static_cast<size_t>(size_)) + (number % kKept) * kTransferWords;
}

std::optional<std::pair<int, Call>> Board::post(uint64_t number, const Call& call) {
  if (words_ == nullptr) {
    return std::nullopt;
  }
  auto* slot = call_slot(rank_, number);
  begin(slot);
  slot[1].store(static_cast<int64_t>(call.type), std::memory_order_relaxed);
  slot[2].store(static_cast<int64_t>(call.dtype), std::memory_order_relaxed);
  slot[3].store(call.count, std::memory_order_relaxed);
  slot[4].store(call.root, std::memory_order_relaxed);
  slot[5].store(call.reduction, std::memory_order_relaxed);
  if (!call.given.empty()) {
    for (int rank = 0; rank < size_; ++rank) {
      slot[kCallWords + rank].store(call.given[rank], std::memory_order_relaxed);
      slot[kCallWords + size_ + rank].store(call.taken[rank], std::memory_order_relaxed);
    }
  }
  slot[0].store(static_cast<int64_t>(number));
  return compare(number, call);
}

std::optional<std::pair<int, Call>> Board::compare(uint64_t number, const Call& call) const {
  if (words_ == nullptr) {
    return std::nullopt;
  }
  const bool exchange = !call.given.empty();
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) {
      continue;
    }
    auto other = find_call(rank, number);
    if (!other) {
      continue;
    }
    const bool differs = other->type != call.type || other->dtype != call.dtype || other->count != call.count ||
        other->root != call.root || other->reduction != call.reduction ||
        (exchange && (other->given[rank_] != call.taken[rank] || other->taken[rank_] != call.given[rank]));
    if (differs) {
      return std::make_pair(rank, std::move(*other));
    }
  }
  return std::nullopt;
}

void Board::withdraw(uint64_t number) {
  if (words_ != nullptr) {
    call_slot(rank_, number)[0].store(0);
  }
}

std::optional<Call> Board::find_call(int rank, uint64_t number) const {
  const auto* slot = call_slot(rank, number);
  if (slot[0].load() != static_cast<int64_t>(number)) {
    return std::nullopt;
  }
  Call call{static_cast<c10d::OpType>(slot[1].load()), slot[3].load(), static_cast<at::ScalarType>(slot[2].load())};
  call.root = slot[4].load();
  call.reduction = slot[5].load();
  if (call.type == c10d::OpType::ALLTOALL || call.type == c10d::OpType::ALLTOALL_BASE) {
    for (int other = 0; other < size_; ++other) {
      call.given.push_back(slot[kCallWords + other].load());
      call.taken.push_back(slot[kCallWords + size_ + other].load());
    }
  }
  return slot[0].load() == static_cast<int64_t>(number) ? std::make_optional(std::move(call)) : std::nullopt;
}

std::optional<int64_t> Board::post_send(int peer, int tag, int64_t bytes) {
  const auto room = post_transfer(kSend, peer, tag, bytes);
  return room && *room < bytes ? room : std::nullopt;
}

std::optional<int64_t> Board::post_receive(int peer, int tag, int64_t bytes) {
  const auto sent = post_transfer(kReceive, peer, tag, bytes);
  return sent && *sent > bytes ? sent : std::nullopt;
}

void Board::post_receive_from_any() {
  if (words_ != nullptr) {
    takes_from_any(rank_)->store(1);
  }
}

std::optional<int64_t> Board::post_transfer(int64_t kind, int peer, int tag, int64_t bytes) {
  if (words_ == nullptr || peer < 0 || peer >= size_) {
    return std::nullopt;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto number = ++numbers_[{kind, peer, tag}];
  auto* slot = transfer_slot(rank_, transfers_++);
  begin(slot);
  slot[1].store(kind, std::memory_order_relaxed);
  slot[2].store(peer, std::memory_order_relaxed);
  slot[3].store(tag, std::memory_order_relaxed);
  slot[4].store(number, std::memory_order_relaxed);
  slot[5].store(bytes, std::memory_order_relaxed);
  slot[0].store(static_cast<int64_t>(transfers_));
  if (takes_from_any(kind == kSend ? peer : rank_)->load() != 0) {
    return std::nullopt;
  }
  return find_transfer(peer, kind == kSend ? kReceive : kSend, rank_, tag, number);
}

std::optional<int64_t> Board::find_transfer(int rank, int64_t kind, int peer, int tag, int64_t number) const {
  for (uint64_t at = 0; at < kKept; ++at) {
    const auto* slot = transfer_slot(rank, at);
    const auto before = slot[0].load();
    const bool found = before != 0 && slot[1].load() == kind && slot[2].load() == peer && slot[3].load() == tag &&
        slot[4].load() == number;
    const auto bytes = slot[5].load();
    if (found && slot[0].load() == before) {
      return bytes;
    }
  }
  return std::nullopt;
}

} // namespace torch_neuronx::distributed
