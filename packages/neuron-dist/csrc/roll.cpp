#include "roll.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <sstream>

namespace torch_neuronx::distributed {
namespace {

using std::chrono::milliseconds;

/// A collective that runs for longer makes its rank say how far it is.
constexpr milliseconds kLong{1000};
/// How often the watcher looks.
constexpr milliseconds kLook{500};
/// How long a failure waits for ranks that have not said anything: all that wait with it have done so by then.
constexpr milliseconds kPatience{4000};

std::string key_of(int rank) {
  return "arrived/" + std::to_string(rank);
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& caught) {
    return caught.what_without_backtrace();
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

std::exception_ptr backend_error(const std::string& message) {
  try {
    TORCH_CHECK_WITH(DistBackendError, false, message);
  } catch (const c10::DistBackendError&) {
    return std::current_exception();
  }
}

/// How many calls a rank's note names.
constexpr size_t kLatest = 16;

double seconds(std::chrono::steady_clock::duration duration) {
  return static_cast<double>(std::chrono::duration_cast<milliseconds>(duration).count()) / 1000;
}

} // namespace

std::string name_of(c10d::OpType type) {
  switch (type) {
    case c10d::OpType::ALLREDUCE:
      return "all_reduce";
    case c10d::OpType::ALLREDUCE_COALESCED:
      return "all_reduce_coalesced";
    case c10d::OpType::ALLGATHER:
      return "all_gather";
    case c10d::OpType::_ALLGATHER_BASE:
      return "all_gather_into_tensor";
    case c10d::OpType::ALLGATHER_COALESCED:
      return "all_gather_coalesced";
    case c10d::OpType::REDUCE_SCATTER:
      return "reduce_scatter";
    case c10d::OpType::_REDUCE_SCATTER_BASE:
      return "reduce_scatter_tensor";
    case c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED:
      return "reduce_scatter_tensor_coalesced";
    case c10d::OpType::ALLTOALL:
      return "all_to_all";
    case c10d::OpType::ALLTOALL_BASE:
      return "all_to_all_single";
    default:
      break;
  }
  auto name = c10d::opTypeToString(type);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

Call Call::on(c10d::OpType type, const at::Tensor& tensor) {
  return {type, tensor.numel(), tensor.scalar_type()};
}

std::string Call::text() const {
  auto text = name_of(type);
  return count < 0 ? text : text + " of " + std::to_string(count) + " " + c10::toString(dtype);
}

Roll::Roll(
    c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::string group, const std::vector<uint64_t>& names)
    : store_(std::move(store)), rank_(rank), size_(size), group_(std::move(group)), names_(names) {}

Roll::~Roll() {
  stop();
}

uint64_t Roll::enter(const Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++entered_;
  latest_.push_back(call);
  if (latest_.size() > kLatest) {
    latest_.pop_front();
  }
  running_.emplace(entered_, Clock::now());
  if (!watcher_.joinable() && size_ > 1 && !stopped_) {
    watcher_ = std::thread([this] { watch(); });
  }
  return entered_;
}

void Roll::leave(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  running_.erase(number);
}

void Roll::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) {
    watcher_.join();
  }
}

void Roll::watch() {
  uint64_t said = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [this] { return stopped_; })) {
    if (entered_ == said || running_.empty() || Clock::now() - running_.begin()->second < kLong) {
      continue;
    }
    said = entered_;
    lock.unlock();
    try {
      say_how_far();
    } catch (const std::exception& error) {
      TORCH_WARN_ONCE("The store of process group '", group_, "' does not answer: ", error.what());
    }
    lock.lock();
  }
}

// A note is the number of the latest call, then the calls up to it, one a line, the latest first.
void Roll::say_how_far() {
  std::ostringstream note;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    note << entered_;
    std::for_each(latest_.rbegin(), latest_.rend(), [&](const Call& call) { note << "\n" << call.text(); });
  }
  store_->set(key_of(rank_), note.str());
}

bool Roll::has_arrived(int rank, uint64_t number) {
  return store_->check({key_of(rank)}) && std::stoull(store_->get_to_str(key_of(rank))) >= number;
}

std::string Roll::describe_other_call(uint64_t number, const Call& call) {
  for (int rank = 0; rank < size_; ++rank) {
    std::istringstream note(store_->get_to_str(key_of(rank)));
    std::string line;
    std::getline(note, line);
    const auto latest = std::stoull(line);
    for (auto at = latest; at >= number && std::getline(note, line); --at) {
      if (at == number && line != call.text()) {
        return c10::str(
            "rank ",
            name_of(rank),
            " called ",
            line,
            " there, and rank ",
            name_of(rank_),
            " called ",
            call.text(),
            ". All ranks must make the same calls in the same order.");
      }
    }
  }
  return "every rank arrived, and a connection between them broke or stalled.";
}

std::vector<int> Roll::find_missing(uint64_t number) {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      missing.push_back(rank);
    }
  }
  const auto end = Clock::now() + kPatience;
  while (true) {
    missing.erase(
        std::remove_if(missing.begin(), missing.end(), [&](int rank) { return has_arrived(rank, number); }),
        missing.end());
    std::unique_lock<std::mutex> lock(mutex_);
    if (missing.empty() || Clock::now() > end || changed_.wait_for(lock, kLook / 2, [this] { return stopped_; })) {
      return missing;
    }
  }
}

uint64_t Roll::name_of(int rank) const {
  return names_.empty() ? static_cast<uint64_t>(rank) : names_.at(static_cast<size_t>(rank));
}

std::exception_ptr Roll::explain(uint64_t number, const Call& call, const std::exception_ptr& cause) {
  std::ostringstream message;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto started = running_.find(number);
    const auto age = started == running_.end() ? Clock::duration::zero() : Clock::now() - started->second;
    message << distributed::name_of(call.type) << " (number " << number << " of group '" << group_
            << "') failed on rank " << name_of(rank_) << " after " << seconds(age) << " s: ";
  }
  try {
    say_how_far();
    const auto missing = find_missing(number);
    if (missing.empty()) {
      message << describe_other_call(number, call);
    } else {
      message << (missing.size() == 1 ? "rank " : "ranks ");
      for (size_t i = 0; i < missing.size(); ++i) {
        message << (i == 0 ? "" : ", ") << name_of(missing[i]);
      }
      message << " of the group did not arrive. Look at what " << (missing.size() == 1 ? "it" : "they")
              << " printed last: a rank that died, raised or hangs ends the others' collectives.";
    }
  } catch (const std::exception& error) {
    message << "the group's store is gone as well, and with it the process that kept it (rank 0, or its launcher).";
  }
  message << " The transport says: " << text_of(cause);
  return backend_error(message.str());
}

std::exception_ptr Roll::explain_peer(int peer, const std::string& operation, const std::exception_ptr& cause) const {
  std::ostringstream message;
  message << operation << " of group '" << group_ << "' failed on rank " << name_of(rank_);
  if (peer >= 0) {
    message << ": rank " << name_of(peer) << " did not take part. Look at what it printed last";
  }
  message << ". The transport says: " << text_of(cause);
  return backend_error(message.str());
}

} // namespace torch_neuronx::distributed
