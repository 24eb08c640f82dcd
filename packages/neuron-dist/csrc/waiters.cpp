#include "waiters.h"

#include "gil.h"

namespace torch_neuronx::distributed {

Waiters::~Waiters() {
  stop();
}

void Waiters::start(std::function<void()> wait, std::function<void()> cancel) {
  std::lock_guard<std::mutex> lock(mutex_);
  reap();
  if (stopped_) {
    cancel();
    return;
  }
  auto ended = std::make_shared<std::atomic<bool>>(false);
  std::thread thread([wait = std::move(wait), ended]() mutable {
    wait();
    wait = nullptr; // what it holds goes before the thread counts as ended
    ended->store(true);
  });
  running_.push_back({std::move(thread), std::move(cancel), std::move(ended)});
}

void Waiters::stop() {
  std::vector<Waiter> running;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    running.swap(running_);
  }
  WithoutGil without_gil;
  for (auto& waiter : running) {
    if (!waiter.ended->load()) {
      waiter.cancel();
    }
    if (waiter.thread.get_id() == std::this_thread::get_id()) {
      waiter.thread.detach(); // a callback of this very waiter let go of the group
    } else {
      waiter.thread.join();
    }
  }
}

void Waiters::reap() {
  for (auto waiter = running_.begin(); waiter != running_.end();) {
    if (waiter->ended->load()) {
      waiter->thread.join();
      waiter = running_.erase(waiter);
    } else {
      ++waiter;
    }
  }
}

} // namespace torch_neuronx::distributed
