#include "steps.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch_neuronx/alias.h>
#include <torch_neuronx/kernel_scope.h>

#include <array>
#include <functional>
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

namespace {

template <typename Function>
Steps::Loop loop(Function, Steps::Shape shape) {
  switch (shape) {
    case Steps::Shape::kTensors:
      return [](const float* a, const float* b, float* result, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          result[i] = Function{}(a[i], b[i]);
        }
      };
    case Steps::Shape::kNumberLast:
      return [](const float* a, const float* b, float* result, int64_t count) {
        const float number = *b;
        for (int64_t i = 0; i < count; ++i) {
          result[i] = Function{}(a[i], number);
        }
      };
    case Steps::Shape::kNumberFirst:
      return [](const float* a, const float* b, float* result, int64_t count) {
        const float number = *a;
        for (int64_t i = 0; i < count; ++i) {
          result[i] = Function{}(number, b[i]);
        }
      };
  }
  return nullptr;
}

struct Maximum {
  float operator()(float a, float b) const {
    return a != a ? a : (b < a ? a : b); // NaN of either
  }
};

struct Minimum {
  float operator()(float a, float b) const {
    return a != a ? a : (a < b ? a : b);
  }
};

} // namespace

Steps::Loop Steps::loop_of(const std::string& name, Shape shape) {
  if (name == "add") {
    return loop(std::plus<float>{}, shape);
  }
  if (name == "sub") {
    return loop(std::minus<float>{}, shape);
  }
  if (name == "mul") {
    return loop(std::multiplies<float>{}, shape);
  }
  if (name == "div") {
    return loop(std::divides<float>{}, shape);
  }
  if (name == "maximum") {
    return loop(Maximum{}, shape);
  }
  if (name == "minimum") {
    return loop(Minimum{}, shape);
  }
  return nullptr;
}

void Steps::fuse(const std::vector<Written>& steps) {
  const size_t first = inputs_ + constants_.size();
  for (const auto& constant : constants_) {
    if (constant.scalar_type() != at::kFloat || constant.numel() != 1) {
      return;
    }
    numbers_.push_back(*constant.const_data_ptr<float>()); // item() would go to PyTorch, which traces
  }
  std::vector<bool> seen(steps.size());
  for (const auto result : results_) {
    if (result < first || seen[result - first]) {
      return;
    }
    seen[result - first] = true;
  }
  std::vector<Fused> fused;
  const auto is_number = [&](size_t value) { return value >= inputs_ && value < first; };
  for (const auto& [name, operands, numbers] : steps) {
    if (operands.size() != 2 || (is_number(operands[0]) && is_number(operands[1]))) {
      return;
    }
    const auto shape = is_number(operands[0]) ? Shape::kNumberFirst
        : is_number(operands[1])              ? Shape::kNumberLast
                                              : Shape::kTensors;
    const auto found = loop_of(name, shape);
    if (found == nullptr) {
      return;
    }
    fused.push_back({found, operands});
  }
  fused_ = std::move(fused);
}

py::object Steps::call_fused(const py::list& inputs) const {
  constexpr size_t kValues = 64;
  std::array<const float*, kValues> values;
  const size_t first = inputs_ + constants_.size();
  if (inputs_ == 0 || first + fused_.size() > kValues) {
    return {};
  }
  const at::Tensor* like = nullptr;
  for (size_t i = 0; i < inputs_; ++i) {
    PyObject* object = PyList_GET_ITEM(inputs.ptr(), static_cast<Py_ssize_t>(i));
    if (!THPVariable_Check(object)) {
      return {};
    }
    const auto& tensor = THPVariable_Unpack(object);
    if (tensor.scalar_type() != at::kFloat || !tensor.is_contiguous() || tensor.is_neg() ||
        (like != nullptr && tensor.sizes() != like->sizes())) {
      return {};
    }
    like = like == nullptr ? &tensor : like;
    values[i] = tensor.const_data_ptr<float>();
  }
  for (size_t i = 0; i < numbers_.size(); ++i) {
    values[inputs_ + i] = &numbers_[i];
  }
  const int64_t count = like->numel();
  thread_local std::vector<float> scratch;
  scratch.resize(std::max<size_t>(scratch.size(), fused_.size() * static_cast<size_t>(count)));
  py::list outputs(results_.size());
  c10::SmallVector<at::Tensor, 4> results;
  for (size_t i = 0; i < results_.size(); ++i) {
    results.push_back(at::detail::empty_cpu(like->sizes(), at::kFloat));
  }
  for (size_t i = 0; i < fused_.size(); ++i) {
    float* result = scratch.data() + i * static_cast<size_t>(count);
    for (size_t j = 0; j < results_.size(); ++j) {
      if (results_[j] == first + i) {
        result = results[j].mutable_data_ptr<float>();
      }
    }
    const auto& step = fused_[i];
    step.loop(values[step.operands[0]], values[step.operands[1]], result, count);
    values[first + i] = result;
  }
  for (size_t i = 0; i < results_.size(); ++i) {
    if (C10_UNLIKELY(!adopt_fresh(results[i], core_))) {
      results[i] = adopt(std::move(results[i]), core_);
    }
    PyList_SET_ITEM(outputs.ptr(), static_cast<Py_ssize_t>(i), THPVariable_Wrap(std::move(results[i])));
  }
  return outputs;
}

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
  fuse(steps);
}

py::list Steps::call(const py::list& inputs) const {
  if (inputs.size() != inputs_) {
    throw py::value_error(
        "The program takes " + std::to_string(inputs_) + " inputs and got " + std::to_string(inputs.size()) + ".");
  }
  const at::AutoDispatchBelowADInplaceOrView raw;
  const KernelScope scope(core_);
  if (!fused_.empty()) {
    auto outputs = call_fused(inputs);
    if (outputs) {
      return outputs;
    }
  }
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
