#include "op_info.h"

#include <memory>
#include <mutex>
#include <shared_mutex>

#include <c10/util/Exception.h>

#include "device.h"

namespace torch_neuronx {

namespace {

struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<OpInfo>> by_name;
  std::unordered_map<c10::OperatorName, OpInfo*> by_operator;
  bool table_set = false;
};

Registry& registry() {
  static auto* instance = new Registry();
  return *instance;
}

struct Tracking {
  std::mutex mutex;
  std::vector<const OpInfo*> calls;
};

Tracking& tracking() {
  static auto* instance = new Tracking();
  return *instance;
}

Policy current_policy;

Listeners& listeners() {
  static auto* installed = new Listeners();
  return *installed;
}

// Both callers hold the lock.
OpInfo& find_or_make(Registry& all, const std::string& name) {
  auto& slot = all.by_name[name];
  if (slot == nullptr) {
    slot = std::make_unique<OpInfo>(name);
    if (all.table_set) {
      slot->status = OpStatus::kFallback;
      slot->reason = "it has no lowering to the target";
      slot->plain = false;
    }
  }
  return *slot;
}

} // namespace

OpInfo& op_info(const c10::OperatorName& name) {
  auto& all = registry();
  {
    std::shared_lock lock(all.mutex);
    auto it = all.by_operator.find(name);
    if (C10_LIKELY(it != all.by_operator.end())) {
      return *it->second;
    }
  }
  std::unique_lock lock(all.mutex);
  auto full_name = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  OpInfo& info = find_or_make(all, full_name);
  all.by_operator.emplace(name, &info);
  return info;
}

OpInfo& op_info(const std::string& full_name) {
  auto& all = registry();
  std::unique_lock lock(all.mutex);
  return find_or_make(all, full_name);
}

void set_op_statuses(const std::vector<OpStatusRow>& rows) {
  auto& all = registry();
  std::unique_lock lock(all.mutex);
  all.table_set = true;
  for (auto& [name, info] : all.by_name) {
    info->status = OpStatus::kFallback;
    info->reason = "it has no lowering to the target";
    info->plain = false;
  }
  for (const auto& row : rows) {
    OpInfo& info = find_or_make(all, row.name);
    info.status = row.status;
    info.reason = row.reason;
    info.plain = row.status == OpStatus::kNative;
  }
}

void set_policy(const Policy& policy) {
  current_policy = policy;
}

const Policy& policy() noexcept {
  return current_policy;
}

void set_listeners(Listeners installed) {
  listeners() = std::move(installed);
}

void note_float64() {
  static std::atomic<bool> told{false};
  if (C10_UNLIKELY(!told.load(std::memory_order_relaxed)) && listeners().float64 && !told.exchange(true)) {
    told = listeners().float64();
  }
}

void note_fallback(OpInfo& info, const char* reason) {
  info.fallbacks.fetch_add(1, std::memory_order_relaxed);
  if (C10_UNLIKELY(!info.fallback_reported.load(std::memory_order_relaxed)) && listeners().fallback &&
      !info.fallback_reported.exchange(true)) {
    info.fallback_reported = listeners().fallback(info.name, reason != nullptr ? std::string(reason) : info.reason);
  }
}

std::unordered_map<std::string, uint64_t> fallback_counts() {
  auto& all = registry();
  std::shared_lock lock(all.mutex);
  std::unordered_map<std::string, uint64_t> counts;
  for (const auto& [name, info] : all.by_name) {
    if (const auto count = info->fallbacks.load(std::memory_order_relaxed)) {
      counts.emplace(name, count);
    }
  }
  return counts;
}

void set_op_tracking(bool on) {
  set_mode(kModeTrackOps, on);
}

void clear_op_tracking() {
  auto& log = tracking();
  std::lock_guard<std::mutex> lock(log.mutex);
  log.calls.clear();
}

void note_execution(const OpInfo& info) {
  auto& log = tracking();
  std::lock_guard<std::mutex> lock(log.mutex);
  log.calls.push_back(&info);
}

std::vector<std::string> executed_ops() {
  auto& log = tracking();
  std::lock_guard<std::mutex> lock(log.mutex);
  std::vector<std::string> names;
  names.reserve(log.calls.size());
  for (const OpInfo* info : log.calls) {
    names.push_back(info->name.substr(0, info->name.find('.')));
  }
  return names;
}

} // namespace torch_neuronx
