#include "work.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <atomic>

namespace torch_neuronx::distributed {
namespace {

const c10::ListTypePtr& tensors_type() {
  static const auto type = c10::ListType::create(c10::TensorType::get());
  return type;
}

/// Futures of device tensors must name their devices: torch orders streams and callbacks by them.
FuturePtr make_future(const TensorList& outputs) {
  std::vector<c10::Device> devices;
  devices.reserve(outputs.size());
  for (const auto& output : outputs) {
    devices.push_back(output.device());
  }
  return c10::make_intrusive<c10::ivalue::Future>(tensors_type(), std::move(devices));
}

/// Names the storages, for which the future would else search its value.
void mark_completed(c10::ivalue::Future& future, const TensorList& outputs, const std::exception_ptr& error = nullptr) {
  if (error) {
    future.setError(error);
    return;
  }
  std::vector<c10::ivalue::Future::WeakStorage> storages;
  storages.reserve(outputs.size());
  for (const auto& output : outputs) {
    storages.emplace_back(output.storage().getWeakStorageImpl());
  }
  future.markCompleted(outputs, std::move(storages));
}

} // namespace

Completion::Completion(
    uint64_t number, Call call, std::shared_ptr<Cargo> cargo, TensorList outputs, std::shared_ptr<Roll> roll)
    : number_(number),
      call_(std::move(call)),
      cargo_(std::move(cargo)),
      outputs_(std::move(outputs)),
      roll_(std::move(roll)) {}

std::exception_ptr Completion::finish(const std::exception_ptr& error) {
  const auto explained = error ? roll_->explain(number_, call_, error) : nullptr;
  roll_->leave(number_);
  if (explained) {
    return explained;
  }
  try {
    cargo_->unload();
  } catch (...) { // anything: who waits must hear of it
    return std::current_exception();
  }
  return nullptr;
}

void Completion::complete(const std::exception_ptr& error) {
  const auto found = finish(error);
  FuturePtr future;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    error_ = found;
    future = future_;
  }
  changed_.notify_all();
  if (future) {
    mark_completed(*future, outputs_, found);
  }
}

bool Completion::completed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ended_ && (!future_ || future_->completed());
}

std::exception_ptr Completion::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

void Completion::wait_and_throw() {
  FuturePtr future;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    future = future_;
  }
  if (future) {
    future->wait();
  }
  if (error_) { // written once, before the end
    std::rethrow_exception(error_);
  }
}

FuturePtr Completion::future() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!future_) {
    future_ = make_future(outputs_);
    if (ended_) { // nobody has the future yet, so no callback runs under the lock
      mark_completed(*future_, outputs_, error_);
    }
  }
  return future_;
}

CollectiveWork::CollectiveWork(
    int rank,
    uint64_t number,
    Call call,
    WorkPtr carrier,
    std::shared_ptr<Cargo> cargo,
    TensorList outputs,
    std::shared_ptr<Roll> roll)
    : Work(rank, call.type),
      carrier_(std::move(carrier)),
      completion_(
          std::make_shared<Completion>(
              number, std::move(call), std::move(cargo), std::move(outputs), std::move(roll))) {
  carrier_->getFuture()->addCallback(
      [completion = completion_](c10::ivalue::Future& carried) {
        completion->complete(carried.hasError() ? carried.exception_ptr() : nullptr);
      },
      /*uses_future=*/false);
}

bool CollectiveWork::isCompleted() {
  return completion_->completed();
}

bool CollectiveWork::isSuccess() const {
  return completion_->completed() && !completion_->error();
}

std::exception_ptr CollectiveWork::exception() const {
  return completion_->error();
}

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  try {
    if (!carrier_->wait(timeout)) {
      return false;
    }
  } catch (const std::exception&) {
    if (!carrier_->isCompleted()) {
      throw; // the caller's patience is over, the collective goes on
    }
  }
  completion_->wait_and_throw(); // what failed, it says in full
  return true;
}

void CollectiveWork::synchronize() {
  wait(kNoTimeout);
}

void CollectiveWork::abort() {
  carrier_->abort();
}

TensorList CollectiveWork::result() {
  return completion_->outputs();
}

FuturePtr CollectiveWork::getFuture() {
  return completion_->future();
}

uint64_t CollectiveWork::getSequencenumber() const {
  return carrier_->getSequencenumber();
}

PointToPointWork::PointToPointWork(
    int rank,
    c10d::OpType type,
    WorkPtr carrier,
    std::shared_ptr<Cargo> cargo,
    TensorList outputs,
    std::shared_ptr<Waiters> waiters,
    std::shared_ptr<Roll> roll,
    int peer)
    : Work(rank, type),
      carrier_(std::move(carrier)),
      cargo_(std::move(cargo)),
      outputs_(std::move(outputs)),
      future_(make_future(outputs_)),
      waiters_(std::move(waiters)),
      roll_(std::move(roll)),
      peer_(peer) {}

bool PointToPointWork::isCompleted() {
  if (future_->completed()) {
    return true;
  }
  start_waiter();
  return false;
}

int PointToPointWork::sourceRank() const {
  return carrier_->sourceRank();
}

void PointToPointWork::complete(std::chrono::milliseconds timeout) {
  std::unique_lock<std::timed_mutex> lock(completing_, std::defer_lock);
  if (timeout == kNoTimeout) {
    lock.lock();
  } else {
    TORCH_CHECK(
        lock.try_lock_for(timeout), "The ", c10d::opTypeToString(opType_), " did not end in ", timeout.count(), " ms.");
  }
  if (future_->completed()) {
    return;
  }
  try {
    TORCH_CHECK(carrier_->wait(timeout), "The ", c10d::opTypeToString(opType_), " was aborted.");
    cargo_->unload();
  } catch (...) { // anything: kept in the future, and seen by every wait()
    const auto error = roll_->explain_peer(peer_, name_of(opType_), std::current_exception());
    future_->setError(error);
    finish(error);
    return;
  }
  mark_completed(*future_, outputs_);
  finish();
}

void PointToPointWork::start_waiter() {
  std::call_once(waiter_, [this] {
    auto self = c10::intrusive_ptr<PointToPointWork>::unsafe_reclaim_from_nonowning(this);
    waiters_->start([self] { self->complete(kNoTimeout); }, [carrier = carrier_] { carrier->abort(); });
  });
}

bool PointToPointWork::wait(std::chrono::milliseconds timeout) {
  complete(timeout);
  future_->waitAndThrow();
  return true;
}

void PointToPointWork::synchronize() {
  wait(kNoTimeout);
}

void PointToPointWork::abort() {
  carrier_->abort();
}

TensorList PointToPointWork::result() {
  return outputs_;
}

FuturePtr PointToPointWork::getFuture() {
  start_waiter();
  return future_;
}

uint64_t PointToPointWork::getSequencenumber() const {
  return carrier_->getSequencenumber();
}

BatchWork::BatchWork(int rank, std::vector<WorkPtr> works)
    : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

bool BatchWork::isCompleted() {
  bool all = true;
  for (const auto& work : works_) { // every one is asked, so that every one makes progress
    all = work->isCompleted() && all;
  }
  return all;
}

bool BatchWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](const WorkPtr& work) { return work->isSuccess(); });
}

std::exception_ptr BatchWork::exception() const {
  for (const auto& work : works_) {
    if (auto error = work->exception()) {
      return error;
    }
  }
  return nullptr;
}

bool BatchWork::wait(std::chrono::milliseconds timeout) {
  bool all = true;
  for (const auto& work : works_) {
    all = work->wait(timeout) && all;
  }
  return all;
}

void BatchWork::synchronize() {
  wait(kNoTimeout);
}

void BatchWork::abort() {
  for (const auto& work : works_) {
    work->abort();
  }
}

TensorList BatchWork::result() {
  TensorList outputs;
  for (const auto& work : works_) {
    for (auto& tensor : work->result()) {
      outputs.push_back(std::move(tensor));
    }
  }
  return outputs;
}

FuturePtr BatchWork::getFuture() {
  auto outputs = result();
  auto future = make_future(outputs);
  if (works_.empty()) {
    mark_completed(*future, outputs);
    return future;
  }
  auto left = std::make_shared<std::atomic<size_t>>(works_.size());
  for (const auto& work : works_) {
    work->getFuture()->addCallback(
        [future, left, outputs](c10::ivalue::Future& part) {
          if (part.hasError()) {
            future->setErrorIfNeeded(part.exception_ptr());
          }
          if (left->fetch_sub(1) == 1 && !future->completed()) {
            mark_completed(*future, outputs);
          }
        },
        /*uses_future=*/false);
  }
  return future;
}

} // namespace torch_neuronx::distributed
