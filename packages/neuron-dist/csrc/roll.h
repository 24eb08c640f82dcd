#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "board.h"
#include "call.h"

namespace torch_neuronx::distributed {

/// Which ranks of a group have arrived at its collectives, and with what calls. A rank that waits for long says so in
/// the group's store, so that an error can name the ranks that are not there, or that called something else.
/// Collectives that go well leave the store alone. Where a rank of this host is seen to call something else, the
/// collective fails before it begins, and so does every later one: the ranks are out of step.
class Roll {
 public:
  /// `names` are the ranks as the program knows them; empty means the group's own numbers.
  Roll(
      c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::string group, const std::vector<uint64_t>& names);
  ~Roll();

  /// Counts a collective that is about to start, and returns its number. Raises where another rank calls something
  /// else there.
  uint64_t enter(const Call& call);
  /// Counts it no more: it did not start.
  void withdraw(uint64_t number);
  /// Counts a send or a receive of `bytes` that is about to start. Raises where the receiver has less room.
  void enter_send(int peer, int tag, int64_t bytes);
  void enter_receive(int peer, int tag, int64_t bytes);
  void enter_receive_from_any();
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

  uint64_t count(const Call& call);
  void watch();
  void say_how_far();
  bool has_arrived(int rank, uint64_t number);
  std::vector<int> find_missing(uint64_t number);
  std::string describe_other_call(uint64_t number, const Call& call);
  /// A call as notes have it: its text, then its reduction and its root.
  std::string line_of(const Call& call) const;
  /// `others` and `own` are lines; reductions and roots are named only where the texts are the same.
  std::string two_calls(int other, const std::string& others, const std::string& own) const;
  std::string describe_difference(const Call& call, int other, const Call& others) const;
  /// The beginning of every message about a collective.
  std::string failed(uint64_t number, const Call& call);
  void check_in_step(const char* operation);
  [[noreturn]] void refuse(const std::string& operation) const;
  [[noreturn]] void raise_out_of_step(const std::string& beginning, const std::string& difference);
  uint64_t name_of(int rank) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  const std::string group_;
  const std::vector<uint64_t> names_;
  Board board_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Clock::time_point> running_;
  std::deque<Call> latest_; // the last of them is number `entered_`
  uint64_t entered_ = 0;
  bool stopped_ = false;
  std::string out_of_step_; // how the ranks differed; empty while nobody knows that they do
  std::thread watcher_;
};

} // namespace torch_neuronx::distributed
