#include "handler.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <atomic>

namespace torch_neuronx::compile {
namespace {

at::ScalarType dtype_of(ffi::DataType dtype) {
  switch (dtype) {
    case ffi::DataType::PRED:
      return at::kBool;
    case ffi::DataType::S8:
      return at::kChar;
    case ffi::DataType::U8:
      return at::kByte;
    case ffi::DataType::S16:
      return at::kShort;
    case ffi::DataType::S32:
      return at::kInt;
    case ffi::DataType::S64:
      return at::kLong;
    case ffi::DataType::F16:
      return at::kHalf;
    case ffi::DataType::BF16:
      return at::kBFloat16;
    case ffi::DataType::F32:
      return at::kFloat;
    case ffi::DataType::F64:
      return at::kDouble;
    default:
      TORCH_CHECK(false, "The emulator has no handler for XLA's dtype ", static_cast<int>(dtype), ".");
  }
}

constexpr int kPair = 2;

thread_local bool runs_program = false;
std::atomic<int> threads_of_programs{0};

// How many threads kernels have that this thread calls from now on; 0: as many as the program's thread gives them.
void set_threads(int count) {
  // Looked up: torch may come with another OpenMP, or without MKL.
  static const auto set_openmp = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  static const auto set_mkl = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "MKL_Set_Num_Threads_Local"));
  static thread_local int now = 0;
  if (count == now) {
    return;
  }
  now = count;
  at::get_num_threads(); // torch sets the number itself when a thread asks for the first time
  if (set_openmp != nullptr) {
    set_openmp(count == 0 ? threads_of_programs.load() : count);
  }
  if (set_mkl != nullptr) {
    set_mkl(count); // 0: as for the process
  }
}

} // namespace

at::Tensor tensor_of(const ffi::AnyBuffer& buffer) {
  const auto sizes = buffer.dimensions();
  return at::from_blob(
      buffer.untyped_data(), {sizes.begin(), sizes.size()}, at::TensorOptions().dtype(dtype_of(buffer.element_type())));
}

at::Tensor operand(const ffi::RemainingArgs& operands, size_t position) {
  auto buffer = operands.get<ffi::AnyBuffer>(position);
  TORCH_CHECK(buffer.has_value(), "The custom call lacks operand ", position, ".");
  return tensor_of(*buffer);
}

at::Tensor result(const ffi::RemainingRets& results, size_t position) {
  auto buffer = results.get<ffi::AnyBuffer>(position);
  TORCH_CHECK(buffer.has_value(), "The custom call lacks result ", position, ".");
  return tensor_of(**buffer);
}

std::unique_lock<std::mutex> turn() {
  static std::mutex mutex;
  std::unique_lock lock(mutex);
  set_threads(!runs_program && threads_of_programs == kPair ? 1 : 0);
  return lock;
}

RunningProgram::RunningProgram() : outer_(std::exchange(runs_program, true)) {
  threads_of_programs = at::get_num_threads();
}

RunningProgram::~RunningProgram() {
  runs_program = outer_;
}

at::Tensor seen(const at::Tensor& memory, const char* name, const ffi::Dictionary& attributes) {
  const auto numbers = required<Integers>(attributes, name);
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  for (size_t i = 1; i + 1 < numbers.size(); i += 2) {
    sizes.push_back(numbers.begin()[i]);
    strides.push_back(numbers.begin()[i + 1]);
  }
  return memory.as_strided(sizes, strides, numbers.begin()[0]);
}

at::Tensor viewed(const ffi::RemainingArgs& operands, size_t position, const ffi::Dictionary& attributes) {
  return seen(operand(operands, position), ("view" + std::to_string(position)).c_str(), attributes);
}

#define NEURON_HANDLER(symbol, function) \
  XLA_FFI_DEFINE_HANDLER(symbol, function, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs())

NEURON_HANDLER(attend_handler, attend);
NEURON_HANDLER(attend_backward_handler, attend_backward);
NEURON_HANDLER(contract_handler, contract);
NEURON_HANDLER(convolve_handler, convolve);
NEURON_HANDLER(layer_norm_handler, layer_norm);
NEURON_HANDLER(layer_norm_backward_handler, layer_norm_backward);
NEURON_HANDLER(softmax_handler, softmax);
NEURON_HANDLER(moments_handler, moments);
NEURON_HANDLER(reduce_handler, reduce);
NEURON_HANDLER(pool_handler, pool);
NEURON_HANDLER(wait_handler, wait);

const std::vector<Handler>& handlers() {
  static const std::vector<Handler> all = {
      {"neuron_attention", attend_handler},
      {"neuron_attention_backward", attend_backward_handler},
      {"neuron_contract", contract_handler},
      {"neuron_convolve", convolve_handler},
      {"neuron_layer_norm", layer_norm_handler},
      {"neuron_layer_norm_backward", layer_norm_backward_handler},
      {"neuron_softmax", softmax_handler},
      {"neuron_moments", moments_handler},
      {"neuron_reduce", reduce_handler},
      {"neuron_pool", pool_handler},
      {"neuron_wait", wait_handler},
  };
  return all;
}

} // namespace torch_neuronx::compile
