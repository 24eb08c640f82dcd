#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <mutex>
#include <vector>

#include "cargo.h"
#include "roll.h"
#include "waiters.h"

namespace torch_neuronx::distributed {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

/// A collective in flight. The carrier's thread unloads the cargo and completes the future, whose value is `outputs`.
class CollectiveWork final : public c10d::Work {
 public:
  CollectiveWork(
      int rank,
      const Call& call,
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
  TensorList outputs_;
  FuturePtr future_;
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
