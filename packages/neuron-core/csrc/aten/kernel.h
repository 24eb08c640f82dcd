// The unboxed way of an eager op: alias the arguments, run the CPU kernel, adopt the results.
//
// Kernel<Op> turns a CPU function with the operator's own signature into a kernel for device neuron. `Op` names the
// operator and the function (csrc/codegen writes one per hot op). A call that is not plain leaves for the boxed path
// (boxed.h), where the rules for float64, tracking, fallbacks, mixed devices and the rest stand once.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "alias.h"
#include "boxed.h"
#include "generator.h"
#include "kernel_scope.h"
#include "op_info.h"

namespace torch_neuronx {

// What one look over the arguments finds.
struct Survey {
  c10::DeviceIndex device = -1;
  bool plain = true;
  uint64_t numel = 1;
};

// Keys of tensors that are more than strided bytes of a core.
constexpr c10::DispatchKeySet kNotPlain = c10::DispatchKeySet(
    {c10::DispatchKey::Conjugate,
     c10::DispatchKey::Negative,
     c10::DispatchKey::ZeroTensor,
     c10::DispatchKey::Sparse,
     c10::DispatchKey::SparseCsr,
     c10::DispatchKey::Quantized,
     c10::DispatchKey::NestedTensor});

inline void survey(Survey& found, const at::Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined()) {
    return;
  }
  const auto dtype = impl->dtype().toScalarType();
  if (C10_LIKELY(impl->device_type() == kNeuron)) {
    const auto index = impl->device().index();
    found.plain = found.plain && dtype != c10::ScalarType::Double && !c10::isComplexType(dtype) &&
        !impl->key_set().has_any(kNotPlain) && (found.device < 0 || found.device == index);
    found.device = index;
    found.numel = std::max(found.numel, static_cast<uint64_t>(impl->numel()));
  } else {
    // A CPU scalar may take part; anything else from another device is the boxed path's to refuse.
    found.plain = found.plain && impl->device_type() == c10::kCPU && impl->dim() == 0 &&
        (impl->is_wrapped_number() || dtype != c10::ScalarType::Double);
  }
}
inline void survey(Survey& found, const std::optional<at::Tensor>& tensor) {
  if (tensor.has_value()) {
    survey(found, *tensor);
  }
}
inline void survey(Survey& found, at::TensorList tensors) {
  for (const auto& tensor : tensors) {
    survey(found, tensor);
  }
}
inline void survey(Survey& found, const at::ITensorListRef& tensors) {
  for (const auto& tensor : tensors) {
    survey(found, tensor);
  }
}
inline void survey(Survey& found, const c10::List<std::optional<at::Tensor>>& tensors) {
  for (const std::optional<at::Tensor> tensor : tensors) { // NOLINT: elements are proxies
    survey(found, tensor);
  }
}
inline void survey(Survey& found, const std::optional<c10::ScalarType>& dtype) {
  found.plain =
      found.plain && (!dtype.has_value() || (*dtype != c10::ScalarType::Double && !c10::isComplexType(*dtype)));
}
inline void survey(Survey& found, c10::ScalarType dtype) {
  found.plain = found.plain && dtype != c10::ScalarType::Double && !c10::isComplexType(dtype);
}
template <class T>
inline void survey(Survey&, const T&) {}

inline at::Tensor alias_of(const at::Tensor& tensor) {
  return is_neuron(tensor) ? borrow_alias(tensor) : tensor;
}

// One argument on its way to the CPU kernel. What is not a tensor passes as it is.
template <class T>
struct Argument {
  Argument(T value, const Survey&) : value_(std::forward<T>(value)) {}
  T get() {
    return std::forward<T>(value_);
  }
  void finish() {}
  T value_;
};

template <>
struct Argument<const at::Tensor&> {
  Argument(const at::Tensor& tensor, const Survey&) : original_(tensor), alias_(alias_of(tensor)) {}
  const at::Tensor& get() {
    return alias_;
  }
  void finish() {}
  const at::Tensor& original_;
  at::Tensor alias_;
};

// Written by the kernel, which may resize it.
template <>
struct Argument<at::Tensor&> {
  Argument(at::Tensor& tensor, const Survey&) : original_(tensor), alias_(alias_of(tensor)) {}
  at::Tensor& get() {
    return alias_;
  }
  void finish() {
    write_back(alias_, original_);
  }
  at::Tensor& original_;
  at::Tensor alias_;
};

template <>
struct Argument<const std::optional<at::Tensor>&> {
  Argument(const std::optional<at::Tensor>& tensor, const Survey&)
      : alias_(tensor.has_value() ? std::optional<at::Tensor>(alias_of(*tensor)) : std::nullopt) {}
  const std::optional<at::Tensor>& get() {
    return alias_;
  }
  void finish() {}
  std::optional<at::Tensor> alias_;
};

template <>
struct Argument<at::TensorList> {
  Argument(at::TensorList tensors, const Survey&) {
    aliases_.reserve(tensors.size());
    for (const auto& tensor : tensors) {
      aliases_.push_back(alias_of(tensor));
    }
  }
  at::TensorList get() {
    return aliases_;
  }
  void finish() {}
  c10::SmallVector<at::Tensor, 8> aliases_;
};

template <>
struct Argument<const at::ITensorListRef&> {
  Argument(const at::ITensorListRef& tensors, const Survey&) {
    aliases_.reserve(tensors.size());
    for (const auto& tensor : tensors) {
      aliases_.push_back(alias_of(tensor));
    }
    reference_ = at::TensorList(aliases_);
  }
  const at::ITensorListRef& get() {
    return reference_;
  }
  void finish() {}
  c10::SmallVector<at::Tensor, 8> aliases_;
  at::ITensorListRef reference_;
};

template <>
struct Argument<const c10::List<std::optional<at::Tensor>>&> {
  Argument(const c10::List<std::optional<at::Tensor>>& tensors, const Survey&) {
    aliases_.reserve(tensors.size());
    for (const std::optional<at::Tensor> tensor : tensors) { // NOLINT: elements are proxies
      aliases_.push_back(tensor.has_value() ? std::optional<at::Tensor>(alias_of(*tensor)) : std::nullopt);
    }
  }
  const c10::List<std::optional<at::Tensor>>& get() {
    return aliases_;
  }
  void finish() {}
  c10::List<std::optional<at::Tensor>> aliases_;
};

template <>
struct Argument<std::optional<at::Generator>> {
  Argument(const std::optional<at::Generator>& generator, const Survey& found)
      : stream_(cpu_stream(generator, found.device, found.numel)) {}
  std::optional<at::Generator> get() {
    return stream_;
  }
  void finish() {}
  std::optional<at::Generator> stream_;
};

// A result whose memory is not a fresh block: a view of an argument, the argument itself, or foreign memory.
template <class... As>
at::Tensor adopt_other(at::Tensor&& result, c10::DeviceIndex device, As&... arguments) {
  at::Tensor adopted;
  auto match = [&](auto& argument) {
    if constexpr (requires {
                    argument.alias_.unsafeGetTensorImpl();
                    argument.original_;
                  }) {
      if (!adopted.defined() && argument.alias_.defined() && is_neuron(argument.original_)) {
        if (argument.alias_.is_same(result)) {
          adopted = argument.original_;
        } else if (argument.alias_.storage().is_alias_of(result.storage())) {
          adopted = rewrap_view(result, argument.original_);
        }
      }
    }
  };
  (match(arguments), ...);
  return adopted.defined() ? adopted : adopt(std::move(result), device);
}

template <class... As>
at::Tensor adopt_result(at::Tensor&& result, c10::DeviceIndex device, As&... arguments) {
  if (C10_LIKELY(result.defined() && adopt_fresh(result, device))) {
    return std::move(result);
  }
  return result.defined() ? adopt_other(std::move(result), device, arguments...) : std::move(result);
}

template <class Op, class Signature>
struct Kernel;

template <class Op, class Result, class... Args>
struct Kernel<Op, Result(Args...)> {
  static Result call(Args... args) {
    Survey found;
    (survey(found, args), ...);
    if (C10_UNLIKELY(
            !found.plain || found.device < 0 || mode_bits.load(std::memory_order_relaxed) != 0 ||
            !Op::info->plain.load(std::memory_order_relaxed))) {
      return c10::impl::BoxedKernelWrapper<Result(Args...)>::call(
          boxed_kernel(), *Op::handle, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), std::forward<Args>(args)...);
    }
    const KernelScope scope(found.device);
    // The arguments are made in place: some hold references into themselves.
    return run(found, Argument<Args>(std::forward<Args>(args), found)...);
  }

 private:
  static Result run(const Survey& found, Argument<Args>... each) {
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      return adopt_result(Op::cpu(each.get()...), found.device, each...);
    } else if constexpr (std::is_same_v<Result, std::vector<at::Tensor>>) {
      auto results = Op::cpu(each.get()...);
      for (auto& result : results) {
        result = adopt_result(std::move(result), found.device, each...);
      }
      return results;
    } else if constexpr (is_tensor_tuple<Result>::value) {
      auto results = Op::cpu(each.get()...);
      std::apply(
          [&](auto&... result) { ((result = adopt_result(std::move(result), found.device, each...)), ...); }, results);
      return results;
    } else if constexpr (std::is_arithmetic_v<Result>) {
      return Op::cpu(each.get()...);
    } else {
      static_assert(
          std::is_same_v<Result, at::Tensor&> || is_reference_tuple<Result>::value || std::is_same_v<Result, void>,
          "no rule for this result");
      Op::cpu(each.get()...);
      (each.finish(), ...);
      if constexpr (!std::is_same_v<Result, void>) {
        auto written = std::tuple_cat(written_argument(each)...);
        if constexpr (std::is_same_v<Result, at::Tensor&>) {
          return std::get<0>(written);
        } else {
          return written;
        }
      }
    }
  }

  template <class T>
  struct is_tensor_tuple : std::false_type {};
  template <class... Ts>
  struct is_tensor_tuple<std::tuple<Ts...>> : std::bool_constant<(std::is_same_v<Ts, at::Tensor> && ...)> {};
  template <class T>
  struct is_reference_tuple : std::false_type {};
  template <class... Ts>
  struct is_reference_tuple<std::tuple<Ts...>> : std::bool_constant<(std::is_same_v<Ts, at::Tensor&> && ...)> {};

  template <class T>
  static std::tuple<> written_argument(Argument<T>&) {
    return {};
  }
  static std::tuple<at::Tensor&> written_argument(Argument<at::Tensor&>& argument) {
    return {argument.original_};
  }
};

// What every `Op` has beside its name, schema and function: `struct AddOp : Operator<AddOp> { ... }`.
template <class Op>
struct Operator {
  static inline OpInfo* info = nullptr;
  static inline const c10::OperatorHandle* handle = nullptr;
};

// Registers Kernel<Op> under the operator's name.
template <class Op>
void register_kernel(torch::Library& library) {
  using Signature = typename Op::schema;
  library.impl(Op::name, c10::CompileTimeFunctionPointer<Signature, &Kernel<Op, Signature>::call>());
  prepare_kernel(Op::name, Op::info, Op::handle);
}

// The same for an operator whose CPU entry in the dispatcher is not what the device should run: the boxed path runs
// Op::cpu as well.
template <class Op>
void register_own_kernel(torch::Library& library) {
  using Signature = typename Op::schema;
  register_kernel<Op>(library);
  Op::info->implementation =
      c10::KernelFunction::makeFromUnboxedFunction(c10::CompileTimeFunctionPointer<Signature, Op::cpu>());
}

} // namespace torch_neuronx
