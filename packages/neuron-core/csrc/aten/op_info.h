// What the device knows about an operator: its status on the target, and what it did in this process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_neuronx {

enum class OpStatus : uint8_t { kNative, kFallback, kUnsupported };

struct OpInfo {
  explicit OpInfo(std::string full_name) : name(std::move(full_name)) {}
  const std::string name; // "aten::add.Tensor"
  std::atomic<OpStatus> status{OpStatus::kNative};
  std::string reason;            // why not native
  std::atomic<bool> plain{true}; // native and nothing to report: the template may run it
  std::atomic<bool> fallback_reported{false};
  std::atomic<uint64_t> fallbacks{0};
  c10::KernelFunction implementation; // for operators whose CPU entry does not fit; invalid for the rest
};

// The record of an operator; made on first request and never destroyed.
OpInfo& op_info(const c10::OperatorName& name);
OpInfo& op_info(const std::string& full_name);

struct OpStatusRow {
  std::string name;
  OpStatus status;
  std::string reason;
};
// Replaces the table. An operator that is not in it is a fallback: it has a CPU kernel and nothing on the chip.
void set_op_statuses(const std::vector<OpStatusRow>& rows);

// The emulation's rules. Relaxed: float64 in full, unsupported operators run.
struct Policy {
  bool relaxed = false;
  bool fallback_only_unimplemented = false;
};
void set_policy(const Policy& policy);
const Policy& policy() noexcept;

// Both are told until they answer true, which means that the user has heard it: of an operator that falls back, and of
// float64 being computed as float32.
struct Listeners {
  std::function<bool(const std::string& name, const std::string& reason)> fallback;
  std::function<bool()> float64;
};
void set_listeners(Listeners listeners);
void note_float64();
void note_fallback(OpInfo& info, const char* reason);
// Calls that fell back so far, by full name.
std::unordered_map<std::string, uint64_t> fallback_counts();

// Op tracking: one name ("aten::add", without the overload) per call while it is on.
void set_op_tracking(bool on);
void clear_op_tracking();
void note_execution(const OpInfo& info);
std::vector<std::string> executed_ops();

} // namespace torch_neuronx
