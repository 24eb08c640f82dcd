#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace torch_neuronx::distributed {

/// Threads that wait for sends and receives whose future someone asked for. A group ends them before its carrier goes.
class Waiters {
 public:
  ~Waiters();

  /// Runs `wait` in a thread; `cancel` makes it return soon. After stop() only `cancel` is called.
  void start(std::function<void()> wait, std::function<void()> cancel);
  /// Cancels what still waits, and returns when every thread has ended.
  void stop();

 private:
  struct Waiter {
    std::thread thread;
    std::function<void()> cancel;
    std::shared_ptr<std::atomic<bool>> ended;
  };

  void reap();

  std::mutex mutex_;
  std::vector<Waiter> running_;
  bool stopped_ = false;
};

} // namespace torch_neuronx::distributed
