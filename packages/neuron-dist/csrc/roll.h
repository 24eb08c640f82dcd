#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace torch_neuronx::distributed {

/// The name that torch.distributed calls an operation by.
std::string name_of(c10d::OpType type);

/// What a rank calls.
struct Call {
  c10d::OpType type;
  /// Elements that this rank gives or gets, the same number on every rank; -1 where ranks may differ.
  int64_t count = -1;
  at::ScalarType dtype = at::ScalarType::Undefined;

  /// What a call on `tensor` is where every rank gives or gets as much.
  static Call on(c10d::OpType type, const at::Tensor& tensor);
  std::string text() const;
};

/// Which ranks of a group have arrived at its collectives, and with what calls. A rank that waits for long says so in
/// the group's store, so that an error can name the ranks that are not there, or that called something else.
/// Collectives that go well leave the store alone.
class Roll {
 public:
  /// `names` are the ranks as the program knows them; empty means the group's own numbers.
  Roll(
      c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::string group, const std::vector<uint64_t>& names);
  ~Roll();

  /// Counts a collective that starts now, and returns its number.
  uint64_t enter(const Call& call);
  /// Forgets a collective that has ended.
  void leave(uint64_t number);
  /// Returns the error for a collective that failed with `cause`: it names the ranks that do not arrive, for which it
  /// waits a little, because they may be late themselves, or a rank that called something else.
  std::exception_ptr explain(uint64_t number, const Call& call, const std::exception_ptr& cause);
  /// The same for a send or a receive, whose other end is known.
  std::exception_ptr explain_peer(int peer, const std::string& operation, const std::exception_ptr& cause) const;
  /// Ends the waits of explain() and the thread that watches.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;

  void watch();
  void say_how_far();
  bool has_arrived(int rank, uint64_t number);
  std::vector<int> find_missing(uint64_t number);
  std::string describe_other_call(uint64_t number, const Call& call);
  uint64_t name_of(int rank) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  const std::string group_;
  const std::vector<uint64_t> names_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Clock::time_point> running_;
  std::deque<Call> latest_; // the last of them is number `entered_`
  uint64_t entered_ = 0;
  bool stopped_ = false;
  std::thread watcher_;
};

} // namespace torch_neuronx::distributed
