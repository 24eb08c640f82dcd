#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "call.h"

namespace torch_neuronx::distributed {

/// What the ranks of a group that are on one host call, in memory that they share.
///
/// The transport ends a process that gets more bytes than it has room for. So a rank says here what it is about to call,
/// and then looks at what the others have said: of two ranks that differ at least the later one sees it, before it has
/// given or taken a byte. Nobody waits for anybody. Where the memory cannot be shared, and for a rank that is more than
/// kKept calls behind another, nothing is compared.
class Board {
 public:
  /// Finds the other ranks through `store`; `key` is this group's own in it.
  Board(c10d::Store& store, const std::string& key, int rank, int size);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  /// Says that this rank makes `call` as its number `number`, from 1, and compares it.
  std::optional<std::pair<int, Call>> post(uint64_t number, const Call& call);
  /// Returns a rank that calls something else there, and what.
  std::optional<std::pair<int, Call>> compare(uint64_t number, const Call& call) const;
  /// Takes back what post() said: the call failed on its way to the transport.
  void withdraw(uint64_t number);
  /// Says that this rank sends `bytes` to `peer`, and returns the size of what that receives there if it is less.
  std::optional<int64_t> post_send(int peer, int tag, int64_t bytes);
  /// Says that this rank receives up to `bytes` from `peer`, and returns the size of what that sends if it is more.
  std::optional<int64_t> post_receive(int peer, int tag, int64_t bytes);
  /// Says that this rank takes what comes from any rank. Which send that is nobody knows before, so that what is sent
  /// to this rank is compared no more.
  void post_receive_from_any();

 private:
  using Word = std::atomic<int64_t>;

  static constexpr uint64_t kKept = 128;

  /// Maps the memory behind the descriptor, if it begins with `mark`; the first rank writes it there.
  void map(bool first, int64_t mark);
  void hang_up();
  Word* call_slot(int rank, uint64_t number) const;
  Word* transfer_slot(int rank, uint64_t number) const;
  Word* takes_from_any(int rank) const;
  std::optional<Call> find_call(int rank, uint64_t number) const;
  std::optional<int64_t> find_transfer(int rank, int64_t kind, int peer, int tag, int64_t number) const;
  std::optional<int64_t> post_transfer(int64_t kind, int peer, int tag, int64_t bytes);
  size_t words_of_rank() const;
  size_t bytes_of_all() const;

  const int rank_;
  const int size_;
  int descriptor_ = -1;   // of the first rank here, for the others to open
  Word* words_ = nullptr; // the mark, then those of all ranks; nothing is compared without

  std::mutex mutex_;
  uint64_t transfers_ = 0;
  std::map<std::tuple<int64_t, int, int>, int64_t> numbers_; // of transfers, by kind, peer and tag
};

} // namespace torch_neuronx::distributed
