#include "steps.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch_neuronx/alias.h>
#include <torch_neuronx/kernel_scope.h>

#include <unordered_map>

namespace py = pybind11;

namespace torch_neuronx::compile {
namespace {

at::IntArrayRef half(const std::vector<int64_t>& numbers, size_t which) {
  const size_t length = numbers.size() / 2;
  return {numbers.data() + which * length, length};
}

at::Tensor sliced(at::Tensor tensor, const std::vector<int64_t>& numbers) {
  for (size_t axis = 0; axis * 3 < numbers.size(); ++axis) {
    tensor = tensor.slice(static_cast<int64_t>(axis), numbers[3 * axis], numbers[3 * axis + 1], numbers[3 * axis + 2]);
  }
  return tensor;
}

} // namespace

#define UNARY(expression)                                                         \
  {1, [](const std::vector<at::Tensor>& values, const Step& step) -> at::Tensor { \
     const auto& a = values[step.operands[0]];                                    \
     [[maybe_unused]] const auto& numbers = step.numbers;                         \
     return expression;                                                           \
   }}
#define BINARY(function)                                                          \
  {2, [](const std::vector<at::Tensor>& values, const Step& step) -> at::Tensor { \
     return at::function(values[step.operands[0]], values[step.operands[1]]);     \
   }}

Steps::Kernel Steps::kernel_of(const std::string& name, size_t operands) {
  static const std::unordered_map<std::string, std::pair<size_t, Kernel>> kernels = {
      {"exp", UNARY(a.exp())},
      {"expm1", UNARY(a.expm1())},
      {"log", UNARY(a.log())},
      {"log1p", UNARY(a.log1p())},
      {"tanh", UNARY(a.tanh())},
      {"sigmoid", UNARY(a.sigmoid())},
      {"sqrt", UNARY(a.sqrt())},
      {"rsqrt", UNARY(a.rsqrt())},
      {"sin", UNARY(a.sin())},
      {"cos", UNARY(a.cos())},
      {"floor", UNARY(a.floor())},
      {"ceil", UNARY(a.ceil())},
      {"round", UNARY(a.round())},
      {"isfinite", UNARY(at::isfinite(a))},
      {"neg", UNARY(a.neg())},
      {"abs", UNARY(a.abs())},
      {"not", UNARY(a.bitwise_not())},
      {"add", BINARY(add)},
      {"sub", BINARY(sub)},
      {"mul", BINARY(mul)},
      {"div", BINARY(div)},
      {"pow", BINARY(pow)},
      {"maximum", BINARY(maximum)},
      {"minimum", BINARY(minimum)},
      {"and", BINARY(bitwise_and)},
      {"or", BINARY(bitwise_or)},
      {"xor", BINARY(bitwise_xor)},
      {"eq", BINARY(eq)},
      {"ne", BINARY(ne)},
      {"lt", BINARY(lt)},
      {"le", BINARY(le)},
      {"gt", BINARY(gt)},
      {"ge", BINARY(ge)},
      {"where",
       {3,
        [](const std::vector<at::Tensor>& values, const Step& step) -> at::Tensor {
          return at::where(values[step.operands[0]], values[step.operands[1]], values[step.operands[2]]);
        }}},
      {"to float32", UNARY(a.to(at::kFloat, false, true))},
      {"to bfloat16", UNARY(a.to(at::kBFloat16, false, true))},
      {"to float16", UNARY(a.to(at::kHalf, false, true))},
      {"to float64", UNARY(a.to(at::kDouble, false, true))},
      {"to bool", UNARY(a.to(at::kBool, false, true))},
      {"to int8", UNARY(a.to(at::kChar, false, true))},
      {"to uint8", UNARY(a.to(at::kByte, false, true))},
      {"to int32", UNARY(a.to(at::kInt, false, true))},
      {"to int64", UNARY(a.to(at::kLong, false, true))},
      {"sum", UNARY(a.sum(at::IntArrayRef(numbers)))},
      {"amax", UNARY(a.amax(numbers))},
      {"amin", UNARY(a.amin(numbers))},
      {"reshape", UNARY(a.reshape(numbers))},
      {"permute", UNARY(a.permute(numbers))},
      {"slice", UNARY(sliced(a, numbers))},
      {"expand", UNARY(a.reshape(half(numbers, 0)).expand(half(numbers, 1)))},
      {"copy", UNARY(a.expand(numbers).clone(at::MemoryFormat::Contiguous))},
  };
  const auto found = kernels.find(name);
  if (found == kernels.end() || found->second.first != operands) {
    throw py::value_error("There is no step '" + name + "' with " + std::to_string(operands) + " operands.");
  }
  return found->second.second;
}

#undef UNARY
#undef BINARY

Steps::Steps(
    size_t inputs,
    std::vector<at::Tensor> constants,
    const std::vector<Written>& steps,
    std::vector<size_t> results,
    c10::DeviceIndex core)
    : inputs_(inputs), constants_(std::move(constants)), results_(std::move(results)), core_(core) {
  size_t known = inputs_ + constants_.size();
  const auto check = [&known](const std::vector<size_t>& numbers) {
    for (const auto number : numbers) {
      if (number >= known) {
        throw py::value_error("A step names the value " + std::to_string(number) + ", which is not there yet.");
      }
    }
  };
  for (const auto& [name, operands, numbers] : steps) {
    check(operands);
    steps_.push_back({kernel_of(name, operands.size()), operands, numbers});
    ++known;
  }
  check(results_);
}

py::list Steps::call(const py::list& inputs) const {
  if (inputs.size() != inputs_) {
    throw py::value_error(
        "The program takes " + std::to_string(inputs_) + " inputs and got " + std::to_string(inputs.size()) + ".");
  }
  const at::AutoDispatchBelowADInplaceOrView raw;
  const KernelScope scope(core_);
  std::vector<at::Tensor> values;
  values.reserve(inputs_ + constants_.size() + steps_.size());
  for (size_t i = 0; i < inputs_; ++i) {
    PyObject* object = PyList_GET_ITEM(inputs.ptr(), static_cast<Py_ssize_t>(i));
    if (!THPVariable_Check(object)) {
      throw py::type_error("Input " + std::to_string(i) + " of the program is no tensor.");
    }
    values.push_back(borrow_alias(THPVariable_Unpack(object)));
  }
  values.insert(values.end(), constants_.begin(), constants_.end());
  for (const auto& step : steps_) {
    values.push_back(step.kernel(values, step));
  }
  py::list outputs(results_.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    auto result = std::move(values[results_[i]]);
    if (C10_UNLIKELY(!result.is_contiguous())) {
      result = result.contiguous();
    }
    if (C10_UNLIKELY(!adopt_fresh(result, core_))) {
      result = adopt(std::move(result), core_);
    }
    PyList_SET_ITEM(outputs.ptr(), static_cast<Py_ssize_t>(i), THPVariable_Wrap(std::move(result)));
  }
  return outputs;
}

} // namespace torch_neuronx::compile
