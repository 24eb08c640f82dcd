// What every handler shares: CPU tensors over XLA's buffers, and the frame in which ATen runs on a thread of XLA.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/InferenceMode.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace torch_neuronx::compile {

namespace ffi = xla::ffi;
using Integers = ffi::Span<const int64_t>;

// A CPU tensor over a row-major buffer, which must outlive it. Raises for a dtype that torch lacks.
at::Tensor tensor_of(const ffi::AnyBuffer& buffer);

// The tensor's memory as the attribute `name` shows it: offset, then size and stride of every axis.
at::Tensor seen(const at::Tensor& memory, const char* name, const ffi::Dictionary& attributes);

// The operand at `position` as the attribute `view<position>` shows it.
at::Tensor viewed(const ffi::RemainingArgs& operands, size_t position, const ffi::Dictionary& attributes);

at::Tensor operand(const ffi::RemainingArgs& operands, size_t position);
at::Tensor result(const ffi::RemainingRets& results, size_t position);

// An attribute that the compiler always writes.
template <typename T>
T required(const ffi::Dictionary& attributes, const char* name) {
  auto value = attributes.get<T>(name);
  TORCH_CHECK(value.has_value(), "The custom call lacks the attribute ", name, ".");
  return *value;
}

inline at::IntArrayRef list(const Integers& values) {
  return {values.begin(), values.size()};
}

// Whose turn it is to use torch's threads. XLA calls handlers that need nothing of each other at the same time, each from
// a thread of its own, and torch would then run as many threads again for each: they wait for each other at barriers.
//
// OpenMP keeps the threads of every thread that ever asked for some, and once they are more than the processors all of
// them sleep and are woken at each barrier. Two threads on two processors would be four. There a kernel that XLA calls
// from a thread of its own, not from the one that runs the program, has no other threads.
std::unique_lock<std::mutex> turn();

// In scope while this thread runs a program.
class RunningProgram {
 public:
  RunningProgram();
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

 private:
  const bool outer_;
};

// Runs `body` as a kernel: without autograd, and with its exceptions as errors of the call.
template <typename Body>
ffi::Error run_kernel(Body&& body) {
  try {
    const auto alone = turn();
    const at::AutoDispatchBelowADInplaceOrView raw;
    body();
    return ffi::Error::Success();
  } catch (const c10::Error& error) {
    return ffi::Error::Internal(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

struct Handler {
  const char* target;
  XLA_FFI_Handler* function;
};

// Every handler of this package, by custom-call target.
const std::vector<Handler>& handlers();

ffi::Error attend(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes);
ffi::Error attend_backward(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes);
ffi::Error contract(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes);
ffi::Error convolve(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes);
ffi::Error layer_norm(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes);
ffi::Error layer_norm_backward(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes);
ffi::Error softmax(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes);
ffi::Error moments(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes);
ffi::Error pool(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes);
ffi::Error reduce(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes);
ffi::Error wait(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes);

} // namespace torch_neuronx::compile
