#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "cargo.h"
#include "roll.h"
#include "waiters.h"

namespace torch_neuronx::distributed {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

/// What a collective works on, and how it ended. The carrier's thread writes the latter.
class Completion {
 public:
  Completion(uint64_t number, Call call, std::shared_ptr<Cargo> cargo, TensorList outputs, std::shared_ptr<Roll> roll);

  /// Called once, when the carrier is done: unloads the cargo. `error` is the carrier's, or nothing.
  void complete(const std::exception_ptr& error);
  /// The future, if someone has it, is completed too.
  bool completed() const;
  /// Nothing before the end, and after a good one.
  std::exception_ptr error() const;
  /// Returns when completed() holds; raises what the collective failed with.
  void wait_and_throw();
  /// Its value is outputs(). Made when it is first asked for, because few ask and its parts cost what a small
  /// collective notices.
  FuturePtr future();
  const TensorList& outputs() const {
    return outputs_;
  }

 private:
  std::exception_ptr finish(const std::exception_ptr& error);

  const uint64_t number_;
  const Call call_;
  const std::shared_ptr<Cargo> cargo_;
  const TensorList outputs_;
  const std::shared_ptr<Roll> roll_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::exception_ptr error_;
  FuturePtr future_;
};

/// A collective in flight, which the roll counts as `number`.
class CollectiveWork final : public c10d::Work {
 public:
  CollectiveWork(
      int rank,
      uint64_t number,
      Call call,
      WorkPtr carrier,
      std::shared_ptr<Cargo> cargo,
      TensorList outputs,
      std::shared_ptr<Roll> roll);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void abort() override;
  TensorList result() override;
  FuturePtr getFuture() override;
  uint64_t getSequencenumber() const override;

 private:
  WorkPtr carrier_;
  /// Outlives the carrier's own reference, so that the carrier's thread does not let go of the tensors: where only
  /// Python has one besides, that takes the GIL, and the carrier wakes who waits after it.
  std::shared_ptr<Completion> completion_;
};

/// A send or a receive in flight. The carrier says that one is done only to who waits for it: the caller of wait(),
/// or one of the group's waiters, once someone asks for the future or polls.
class PointToPointWork final : public c10d::Work {
 public:
  PointToPointWork(
      int rank,
      c10d::OpType type,
      WorkPtr carrier,
      std::shared_ptr<Cargo> cargo,
      TensorList outputs,
      std::shared_ptr<Waiters> waiters,
      std::shared_ptr<Roll> roll,
      int peer);

  bool isCompleted() override;
  int sourceRank() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void abort() override;
  TensorList result() override;
  FuturePtr getFuture() override;
  uint64_t getSequencenumber() const override;

 private:
  void complete(std::chrono::milliseconds timeout);
  void start_waiter();

  WorkPtr carrier_;
  std::shared_ptr<Cargo> cargo_;
  TensorList outputs_;
  FuturePtr future_;
  std::timed_mutex completing_;
  std::shared_ptr<Waiters> waiters_;
  std::shared_ptr<Roll> roll_;
  int peer_;
  std::once_flag waiter_;
};

/// Everything issued between startCoalescing and endCoalescing.
class BatchWork final : public c10d::Work {
 public:
  BatchWork(int rank, std::vector<WorkPtr> works);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void abort() override;
  TensorList result() override;
  FuturePtr getFuture() override;

 private:
  std::vector<WorkPtr> works_;
};

} // namespace torch_neuronx::distributed
