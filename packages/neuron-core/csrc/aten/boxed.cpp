#include "boxed.h"

#include <cmath>
#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "alias.h"
#include "error.h"
#include "generator.h"
#include "kernel_scope.h"
#include "sparse.h"

namespace torch_neuronx {

namespace {

using torch::jit::Stack;

// Operators that take a CPU tensor beside device tensors by PyTorch's own rules: indices, lengths, and the like.
bool may_be_on_cpu(const std::string& op, const std::string& argument) {
  struct Exception {
    const char* op;
    const char* argument;
  };
  static constexpr Exception kAllowed[] = {
      {"aten::index", "indices"},
      {"aten::index_put", "indices"},
      {"aten::_index_put_impl", "indices"},
      {"aten::_unsafe_index", "indices"},
      {"aten::_unsafe_index_put", "indices"},
      {"aten::_pack_padded_sequence", "lengths"},
      {"aten::_pack_padded_sequence_backward", "batch_sizes"},
      {"aten::_pad_packed_sequence", "batch_sizes"},
      {"aten::_ctc_loss", "input_lengths"},
      {"aten::_ctc_loss", "target_lengths"},
      {"aten::_ctc_loss_backward", "input_lengths"},
      {"aten::_ctc_loss_backward", "target_lengths"},
      {"aten::set", "source"},
      {"aten::repeat_interleave", "repeats"},
  };
  for (const auto& allowed : kAllowed) {
    const std::string_view name(allowed.op);
    if (argument == allowed.argument && op.compare(0, name.size(), name) == 0 &&
        (op.size() == name.size() || op[name.size()] == '.' || op[name.size()] == '_')) {
      return true;
    }
  }
  return false;
}

// Operators whose result has the dtype of `self`, whatever else is float64.
bool result_follows_self(const std::string& op) {
  static constexpr std::string_view kNames[] = {
      "aten::bernoulli.Tensor", "aten::masked_fill.Tensor", "aten::index_fill"};
  for (const auto name : kNames) {
    if (op.compare(0, name.size(), name) == 0) {
      return true;
    }
  }
  return false;
}

struct BoxedCall {
  const c10::OperatorHandle& op;
  const c10::FunctionSchema& schema;
  Stack& stack;
  OpInfo& info;
  size_t base;

  c10::DeviceIndex device = -1;
  bool has_complex = false;
  bool has_sparse = false;
  bool double_dimensioned = false; // a float64 tensor with dimensions
  bool double_scalar = false;      // a float64 tensor without
  bool other_float_dimensioned = false;
  uint64_t numel = 1;

  struct Mapped {
    at::Tensor original; // the device tensor
    at::Tensor alias;    // its bytes as a CPU tensor
    at::Tensor passed;   // what the kernel sees: the alias, or a float32 stand-in
    bool written;
  };
  c10::SmallVector<Mapped, 6> mapped;

  BoxedCall(const c10::OperatorHandle& handle, Stack& arguments)
      : op(handle),
        schema(handle.schema()),
        stack(arguments),
        info(op_info(handle.operator_name())),
        base(arguments.size() - handle.schema().arguments().size()) {}

  // ---- looking --------------------------------------------------------------------------------------------------

  struct Misplaced {
    size_t argument;
    c10::Device device;
  };
  std::optional<Misplaced> misplaced;

  void look_at(const at::Tensor& tensor, size_t argument) {
    if (!tensor.defined()) {
      return;
    }
    const auto dtype = tensor.scalar_type();
    if (is_neuron(tensor)) {
      const auto index = tensor.device().index();
      TORCH_CHECK(
          device < 0 || device == index,
          "Expected all tensors to be on the same device, but found at least two devices, neuron:",
          static_cast<int>(device),
          " and neuron:",
          static_cast<int>(index),
          "! (argument '",
          schema.arguments()[argument].name(),
          "' of ",
          info.name,
          ")");
      device = index;
      numel = std::max(numel, static_cast<uint64_t>(tensor.numel()));
      has_complex = has_complex || c10::isComplexType(dtype);
      has_sparse = has_sparse || is_sparse_layout(tensor);
      if (dtype == c10::ScalarType::Double) {
        (tensor.dim() > 0 ? double_dimensioned : double_scalar) = true;
      } else if (c10::isFloatingType(dtype) && tensor.dim() > 0) {
        other_float_dimensioned = true;
      }
    } else if (tensor.dim() > 0 && !misplaced && !may_be_on_cpu(info.name, schema.arguments()[argument].name())) {
      misplaced = Misplaced{argument, tensor.device()};
    }
  }

  template <class Visit>
  void for_each_tensor(Visit&& visit) {
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const auto& value = stack[base + i];
      if (value.isTensor()) {
        visit(value.toTensor(), i);
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) {
          visit(tensor, i);
        }
      } else if (value.isOptionalTensorList()) {
        for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) { // NOLINT
          if (tensor.has_value()) {
            visit(*tensor, i);
          }
        }
      }
    }
  }

  void look() {
    for_each_tensor([this](const at::Tensor& tensor, size_t argument) { look_at(tensor, argument); });
    const bool from_tensors = device >= 0;
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const auto& value = stack[base + i];
      if (value.isDevice() && value.toDevice().type() == kNeuron) {
        device = from_tensors ? device : checked_index(value.toDevice().index());
      }
    }
    if (device < 0) {
      refuse_generator_alone();
      device = current_device();
    }
    if (misplaced && from_tensors) {
      TORCH_CHECK(
          false,
          info.name,
          ": argument '",
          schema.arguments()[misplaced->argument].name(),
          "' is on ",
          misplaced->device,
          " device, expected neuron:",
          static_cast<int>(device),
          ". Move it there with .to('neuron:",
          static_cast<int>(device),
          "').");
    }
  }

  // A generator of a core brings a call on CPU tensors here.
  void refuse_generator_alone() {
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const auto& value = stack[base + i];
      TORCH_CHECK(
          !value.isGenerator() || value.toGenerator().device().type() != kNeuron,
          "Expected a 'cpu' device type for generator but found 'neuron'. Put the tensor on the generator's device.");
    }
  }

  // ---- judging --------------------------------------------------------------------------------------------------

  void refuse_unsupported() const {
    if (info.status.load(std::memory_order_relaxed) == OpStatus::kUnsupported && !policy().relaxed) {
      raise_error(
          ErrorKind::kUnsupportedOperator,
          info.name + " is not supported on device neuron: " + info.reason +
              ". Run it on the CPU, or set TORCH_NEURONX_EMULATOR_RELAXED=1 to let the emulator run what the chip "
              "cannot.");
    }
  }

  // What the table and the chip say: raises, or notes a call that runs on the host.
  void judge() {
    const bool implemented = info.status.load(std::memory_order_relaxed) == OpStatus::kNative;
    const char* missing = has_complex ? "complex numbers" : has_sparse ? "sparse layouts" : nullptr;
    if (implemented && missing != nullptr && policy().fallback_only_unimplemented && !policy().relaxed) {
      raise_error(
          ErrorKind::kUnsupportedOperator,
          info.name + " cannot run on device neuron, because the chip has no " + missing +
              ", and TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS allows a fallback only for operators without an "
              "implementation. Use real, dense tensors, or unset the variable.");
    }
    if (!implemented || missing != nullptr) {
      note_fallback(info, implemented ? (std::string("the chip has no ") + missing).c_str() : nullptr);
    }
    if (mode_bits.load(std::memory_order_relaxed) & kModeTrackOps) {
      note_execution(info);
    }
  }

  bool is_view() const {
    for (const auto& result : schema.returns()) {
      if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) {
        return true;
      }
    }
    return false;
  }

  // ---- dtype rule -----------------------------------------------------------------------------------------------

  bool widen = false; // fresh float32 results stand for float64

  static bool is_dtype_argument(const c10::Argument& argument) {
    auto type = argument.real_type();
    if (const auto* optional = type->castRaw<c10::OptionalType>()) {
      type = optional->getElementType();
    }
    return type->kind() == c10::TypeKind::ScalarTypeType;
  }

  // float64 is computed as float32: stand-ins for the arguments, float32 for a dtype argument.
  bool plan_float64() {
    if (policy().relaxed || is_view()) {
      return false;
    }
    bool asked = false;
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      auto& value = stack[base + i];
      if (value.isInt() && is_dtype_argument(schema.arguments()[i])) {
        asked = true;
        if (value.toScalarType() == c10::ScalarType::Double) {
          value = c10::IValue(static_cast<int64_t>(c10::ScalarType::Float));
          widen = true;
        }
      }
    }
    const bool from_arguments = double_dimensioned || (double_scalar && !other_float_dimensioned);
    if (!asked) {
      widen = from_arguments && !(result_follows_self(info.name) && !first_is_double());
    }
    return widen || double_dimensioned || double_scalar;
  }

  bool first_is_double() const {
    const auto& value = stack[base];
    return value.isTensor() && value.toTensor().defined() && value.toTensor().scalar_type() == c10::ScalarType::Double;
  }

  // ---- running --------------------------------------------------------------------------------------------------

  at::Tensor map(const at::Tensor& tensor, bool written, bool narrow) {
    if (!is_neuron(tensor)) {
      return tensor;
    }
    for (const auto& seen : mapped) {
      if (seen.original.is_same(tensor)) {
        return seen.passed;
      }
    }
    if (is_sparse_layout(tensor)) {
      auto host = map_sparse(tensor, [this](const at::Tensor& component) { return map(component, false, false); });
      auto passed = narrow && tensor.scalar_type() == c10::ScalarType::Double ? host.to(c10::ScalarType::Float) : host;
      return keep(tensor, std::move(host), std::move(passed), written);
    }
    auto alias = borrow_alias_with_bits(tensor);
    auto passed = narrow && tensor.scalar_type() == c10::ScalarType::Double ? alias.to(c10::ScalarType::Float) : alias;
    return keep(tensor, std::move(alias), std::move(passed), written);
  }

  at::Tensor keep(const at::Tensor& original, at::Tensor alias, at::Tensor passed, bool written) {
    if (has_sparse && original.requires_grad()) {
      passed.set_requires_grad(true); // sparse kernels save for backward only what will be asked for
    }
    mapped.push_back({original, std::move(alias), passed, written});
    return passed;
  }

  void map_arguments(bool narrow) {
    const bool random = takes_generator();
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      auto& value = stack[base + i];
      const auto& argument = schema.arguments()[i];
      const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      if (value.isTensor()) {
        value = map(value.toTensor(), written, narrow);
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> passed;
        for (const at::Tensor& tensor : value.toTensorVector()) {
          passed.push_back(map(tensor, written, narrow));
        }
        value = std::move(passed);
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> passed;
        for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) { // NOLINT
          passed.push_back(
              tensor.has_value() ? std::optional<at::Tensor>(map(*tensor, written, narrow)) : std::nullopt);
        }
        value = std::move(passed);
      } else if (value.isDevice() && value.toDevice().type() == kNeuron) {
        value = c10::Device(c10::kCPU);
      } else if (random && argument.name() == "generator") {
        value = cpu_stream(
            value.isNone() ? std::nullopt : std::optional<at::Generator>(value.toGenerator()), device, draws());
      }
    }
  }

  bool takes_generator() const {
    for (const auto& argument : schema.arguments()) {
      if (argument.name() == "generator") {
        return true;
      }
    }
    return false;
  }

  // How many numbers a random call may draw: what advances the generator.
  uint64_t draws() const {
    uint64_t count = numel;
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const auto& value = stack[base + i];
      const auto& name = schema.arguments()[i].name();
      if (name == "size" && value.isIntList()) {
        uint64_t product = 1;
        for (const int64_t extent : value.toIntVector()) {
          product *= static_cast<uint64_t>(std::max<int64_t>(extent, 0));
        }
        count = std::max(count, product);
      } else if ((name == "n" || name == "num_samples") && value.isInt()) {
        count = std::max(count, static_cast<uint64_t>(std::max<int64_t>(value.toInt(), 0)));
      }
    }
    return count;
  }

  void execute() {
    const c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
    if (info.implementation.isValid()) {
      info.implementation.callBoxed(op, cpu, &stack);
    } else if (has_sparse) {
      op.callBoxed(&stack); // which sparse key it is depends on the mixture of arguments
    } else {
      op.redispatchBoxed(cpu, &stack);
    }
  }

  void run(bool narrow) {
    const KernelScope scope(device);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    map_arguments(narrow);
    if (op.hasTag(at::Tag::nondeterministic_seeded) && !takes_generator()) {
      // The kernel draws from the CPU's default generator: lend it this core's stream for the call.
      auto& host = const_cast<at::Generator&>(at::detail::getDefaultCPUGenerator()); // NOLINT
      const auto kept = host.clone();
      host.set_current_seed(cpu_stream(std::nullopt, device, numel).current_seed());
      struct Restore {
        at::Generator& generator;
        const at::Generator& kept;
        ~Restore() {
          generator.set_state(kept.get_state());
        }
      } restore{host, kept};
      execute();
    } else {
      execute();
    }
    finish_arguments();
    finish_results();
  }

  void finish_arguments() {
    for (auto& one : mapped) {
      if (!one.written) {
        continue;
      }
      if (is_sparse_layout(one.alias)) {
        TORCH_CHECK(
            one.passed.is_same(one.alias), info.name, " cannot write to a sparse float64 tensor on device neuron.");
        assign_sparse(
            one.original, one.alias, [this](const at::Tensor& component) { return finish(at::Tensor(component)); });
        continue;
      }
      if (!one.passed.is_same(one.alias)) { // a float32 stand-in was written
        if (one.alias.sizes() != one.passed.sizes()) {
          one.alias.resize_(one.passed.sizes());
        }
        one.alias.copy_(one.passed);
      }
      if ((mode_bits.load(std::memory_order_relaxed) & kModeStrictInt64) && one.alias.scalar_type() == at::kLong) {
        check_int32_range(one.alias, info.name);
      }
      write_back(one.alias, one.original);
    }
  }

  at::Tensor finish(at::Tensor&& result) {
    if (!result.defined()) {
      return std::move(result);
    }
    for (const auto& one : mapped) {
      if (one.passed.is_same(result)) {
        return one.original;
      }
    }
    for (const auto& one : mapped) {
      if (one.passed.is_same(one.alias) && one.alias.has_storage() && result.has_storage() &&
          one.alias.storage().is_alias_of(result.storage())) {
        return rewrap_view(result, one.original);
      }
    }
    if (result.is_quantized() || result.is_nested()) {
      raise_error(
          ErrorKind::kUnsupportedOperator,
          info.name + " has a result that device memory cannot hold: a " +
              (result.is_quantized() ? "quantized" : "nested") + " tensor. Run it on the CPU.");
    }
    if (is_sparse_layout(result)) {
      return map_sparse(result, [this](const at::Tensor& component) { return finish(at::Tensor(component)); });
    }
    if (widen && result.scalar_type() == c10::ScalarType::Float) {
      result = result.to(c10::ScalarType::Double);
    } else if (widen && result.scalar_type() == c10::ScalarType::ComplexFloat) {
      result = result.to(c10::ScalarType::ComplexDouble);
    } else if (result.scalar_type() == c10::ScalarType::Double && !policy().relaxed) {
      note_float64(); // from integers under a float64 default dtype, or from complex numbers
      round_to_float32(result);
    }
    if ((mode_bits.load(std::memory_order_relaxed) & kModeStrictInt64) && result.scalar_type() == at::kLong) {
      check_int32_range(result, info.name);
    }
    return adopt(std::move(result), device);
  }

  void finish_results() {
    const size_t count = schema.returns().size();
    for (size_t i = stack.size() - count; i < stack.size(); ++i) {
      auto& value = stack[i];
      if (value.isTensor()) {
        at::Tensor result = std::move(value).toTensor();
        value = finish(std::move(result));
      } else if (value.isTensorList()) {
        std::vector<at::Tensor> results = std::move(value).toTensorVector();
        c10::List<at::Tensor> finished;
        for (auto& result : results) {
          finished.push_back(finish(std::move(result)));
        }
        value = std::move(finished);
      }
    }
  }
};

} // namespace

void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  ensure_initialized();
  BoxedCall call(op, *stack);
  call.has_sparse =
      keys.has(c10::DispatchKey::Sparse) || keys.has(c10::DispatchKey::SparseCsr); // by layout= alone, too
  call.refuse_unsupported();
  call.look();
  call.judge();
  const bool narrow = call.plan_float64();
  if (narrow) {
    note_float64();
  }
  call.run(narrow);
}

const c10::BoxedKernel& boxed_kernel() {
  static const auto kernel = c10::BoxedKernel::makeFromFunction<&run_boxed>();
  return kernel;
}

void prepare_kernel(const char* name, OpInfo*& info, const c10::OperatorHandle*& handle) {
  const std::string full(name);
  const auto dot = full.find('.');
  const auto base = "aten::" + full.substr(0, dot);
  const auto overload = dot == std::string::npos ? std::string() : full.substr(dot + 1);
  handle = new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow(base.c_str(), overload.c_str()));
  info = &op_info(handle->operator_name());
}

void round_to_float32(at::Tensor& tensor) {
  tensor.copy_(tensor.to(c10::ScalarType::Float));
}

void check_int32_range(const at::Tensor& alias, const std::string& op_name) {
  if (alias.numel() == 0) {
    return;
  }
  const auto low = alias.min().item<int64_t>();
  const auto high = alias.max().item<int64_t>();
  const bool too_low = low < std::numeric_limits<int32_t>::min();
  if (too_low || high > std::numeric_limits<int32_t>::max()) {
    raise_error(
        ErrorKind::kIntegerRange,
        op_name + " has the int64 value " + std::to_string(too_low ? low : high) +
            ", which the chip would truncate to 32 bits. Keep values within int32, or unset "
            "TORCH_NEURONX_STRICT_INT64.");
  }
}

namespace {

// Tensors whose bytes a core cannot hold never get this far; their factories do.
void refuse_layout(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  (void)stack;
  const bool quantized = keys.has(c10::DispatchKey::Quantized);
  raise_error(
      quantized ? ErrorKind::kUnsupportedDtype : ErrorKind::kUnsupportedOperator,
      c10::toString(op.operator_name()) + " is not supported on device neuron, which has no " +
          (quantized ? "quantized dtypes. Keep the tensor on the CPU, or store it as int8 with its own scale."
                     : "nested tensors. Keep the tensor on the CPU, or pad it."));
}

} // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}

} // namespace torch_neuronx
