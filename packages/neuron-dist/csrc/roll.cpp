#include "roll.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/debug.h>

#include <algorithm>
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

/// Between the text of a call and what is named only where the texts of two calls are the same.
constexpr char kBesides = '\t';
/// How many calls a rank's note names.
constexpr size_t kLatest = 16;

double seconds(std::chrono::steady_clock::duration duration) {
  return static_cast<double>(std::chrono::duration_cast<milliseconds>(duration).count()) / 1000;
}

} // namespace

Roll::Roll(
    c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::string group, const std::vector<uint64_t>& names)
    : store_(std::move(store)),
      rank_(rank),
      size_(size),
      group_(std::move(group)),
      names_(names),
      // The parts of a split group may share a store; their first ranks differ. In debug mode all calls are compared,
      // on every host, before they come here.
      board_(
          *store_,
          "board/" + std::to_string(name_of(0)) + "/",
          rank,
          c10d::debug_level() == c10d::DebugLevel::Detail ? 1 : size) {}

Roll::~Roll() {
  stop();
}

uint64_t Roll::enter(const Call& call) {
  const auto number = count(call);
  if (const auto other = board_.post(number, call)) {
    const auto beginning = failed(number, call);
    leave(number);
    raise_out_of_step(beginning, describe_difference(call, other->first, other->second));
  }
  return number;
}

uint64_t Roll::count(const Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!out_of_step_.empty()) {
    refuse(distributed::name_of(call.type));
  }
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

void Roll::withdraw(uint64_t number) {
  board_.withdraw(number);
  const std::lock_guard<std::mutex> lock(mutex_);
  running_.erase(number);
  if (number == entered_) {
    --entered_;
    latest_.pop_back();
  }
}

void Roll::enter_send(int peer, int tag, int64_t bytes) {
  check_in_step("send");
  if (const auto room = board_.post_send(peer, tag, bytes)) {
    raise_out_of_step(
        c10::str("send of group '", group_, "' failed on rank ", name_of(rank_), ": "),
        c10::str("it sends ", bytes, " bytes to rank ", name_of(peer), ", which has room for ", *room, "."));
  }
}

void Roll::enter_receive(int peer, int tag, int64_t bytes) {
  check_in_step("recv");
  if (const auto sent = board_.post_receive(peer, tag, bytes)) {
    raise_out_of_step(
        c10::str("recv of group '", group_, "' failed on rank ", name_of(rank_), ": "),
        c10::str("rank ", name_of(peer), " sends ", *sent, " bytes, and the tensor has room for ", bytes, "."));
  }
}

void Roll::enter_receive_from_any() {
  check_in_step("recv");
  board_.post_receive_from_any();
}

void Roll::check_in_step(const char* operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!out_of_step_.empty()) {
    refuse(operation);
  }
}

void Roll::refuse(const std::string& operation) const {
  std::rethrow_exception(backend_error(
      c10::str(
          operation,
          " of group '",
          group_,
          "' cannot begin on rank ",
          name_of(rank_),
          ": the ranks of the group are out of step, since ",
          out_of_step_,
          " Destroy the group on every rank and make it again.")));
}

void Roll::raise_out_of_step(const std::string& beginning, const std::string& difference) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    out_of_step_ = difference;
  }
  try {
    say_how_far(); // for the ranks that find nobody there
  } catch (const std::exception& error) {
    TORCH_WARN_ONCE("The store of process group '", group_, "' does not answer: ", error.what());
  }
  std::rethrow_exception(backend_error(
      beginning + difference + " The transport says: nothing, for the calls were compared before they began."));
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
    std::for_each(latest_.rbegin(), latest_.rend(), [&](const Call& call) { note << "\n" << line_of(call); });
  }
  store_->set(key_of(rank_), note.str());
}

bool Roll::has_arrived(int rank, uint64_t number) {
  return store_->check({key_of(rank)}) && std::stoull(store_->get_to_str(key_of(rank))) >= number;
}

std::string Roll::describe_other_call(uint64_t number, const Call& call) {
  if (const auto other = board_.compare(number, call)) {
    const auto difference = describe_difference(call, other->first, other->second);
    const std::lock_guard<std::mutex> lock(mutex_);
    out_of_step_ = difference; // the other has not begun
    return difference;
  }
  for (int rank = 0; rank < size_; ++rank) {
    std::istringstream note(store_->get_to_str(key_of(rank)));
    std::string line;
    std::getline(note, line);
    const auto latest = std::stoull(line);
    for (auto at = latest; at >= number && std::getline(note, line); --at) {
      if (at == number && line != line_of(call)) {
        return two_calls(rank, line, line_of(call));
      }
    }
  }
  return "every rank arrived, and a connection between them broke or stalled.";
}

std::string Roll::line_of(const Call& call) const {
  auto line = call.text() + kBesides;
  if (call.reduction >= 0) {
    line += " with " + distributed::name_of(static_cast<c10d::ReduceOp::RedOpType>(call.reduction));
  }
  if (call.root >= 0) {
    line += " with root " + std::to_string(name_of(static_cast<int>(call.root)));
  }
  return line;
}

std::string Roll::two_calls(int other, const std::string& others, const std::string& own) const {
  const auto text_of_line = [](const std::string& line) { return line.substr(0, line.find(kBesides)); };
  const bool alike = text_of_line(others) == text_of_line(own);
  const auto shown = [&](std::string line) {
    if (!alike) {
      return text_of_line(line);
    }
    line.erase(std::remove(line.begin(), line.end(), kBesides), line.end());
    return line;
  };
  return c10::str(
      "rank ",
      name_of(other),
      " called ",
      shown(others),
      " there, and rank ",
      name_of(rank_),
      " called ",
      shown(own),
      ". All ranks must make the same calls in the same order.");
}

std::string Roll::describe_difference(const Call& call, int other, const Call& others) const {
  const auto exchanges = [](const Call& any) { return any.count < 0 && !any.given.empty(); };
  if (!exchanges(call) || !exchanges(others) || call.type != others.type || call.dtype != others.dtype) {
    return two_calls(other, line_of(others), line_of(call));
  }
  return c10::str(
      "rank ",
      name_of(other),
      " gives it ",
      others.given[rank_],
      " elements and takes ",
      others.taken[rank_],
      ", and rank ",
      name_of(rank_),
      " takes ",
      call.taken[other],
      " from it and gives it ",
      call.given[other],
      ". What one rank gives another the other must take.");
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

std::string Roll::failed(uint64_t number, const Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto started = running_.find(number);
  const auto age = started == running_.end() ? Clock::duration::zero() : Clock::now() - started->second;
  return c10::str(
      distributed::name_of(call.type),
      " (number ",
      number,
      " of group '",
      group_,
      "') failed on rank ",
      name_of(rank_),
      " after ",
      seconds(age),
      " s: ");
}

std::exception_ptr Roll::explain(uint64_t number, const Call& call, const std::exception_ptr& cause) {
  std::ostringstream message;
  message << failed(number, call);
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
