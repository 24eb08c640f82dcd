// A small program, run as calls of ATen.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <tuple>
#include <vector>

namespace torch_neuronx::compile {

class __attribute__((visibility("hidden"))) Steps {
 public:
  // An operation by name, the numbers of its operands, and its own integers.
  using Written = std::tuple<std::string, std::vector<size_t>, std::vector<int64_t>>;

  // An operation on float32 elements one by one, which IEEE 754 defines: a loop gives what ATen gives.
  using Loop = void (*)(const float* a, const float* b, float* result, int64_t count);
  enum class Shape { kTensors, kNumberLast, kNumberFirst };

  // Values are numbered: inputs, constants (CPU tensors without axes), then what each step makes. Raises ValueError for a
  // number that names no earlier value, and for an operation that there is not.
  Steps(
      size_t inputs,
      std::vector<at::Tensor> constants,
      const std::vector<Written>& steps,
      std::vector<size_t> results,
      c10::DeviceIndex core);

  // As Program::call.
  pybind11::list call(const pybind11::list& inputs) const;

 private:
  struct Step;
  using Kernel = at::Tensor (*)(const std::vector<at::Tensor>&, const Step&);
  struct Step {
    Kernel kernel;
    std::vector<size_t> operands;
    std::vector<int64_t> numbers;
  };

  struct Fused {
    Loop loop;
    std::vector<size_t> operands;
  };

  static Loop loop_of(const std::string& name, Shape shape);
  static Kernel kernel_of(const std::string& name, size_t operands);

  void fuse(const std::vector<Written>& steps);
  // Runs the loops where every input is a contiguous float32 tensor of one shape; without a result elsewhere.
  pybind11::object call_fused(const pybind11::list& inputs) const;

  size_t inputs_;
  std::vector<at::Tensor> constants_;
  std::vector<Step> steps_;
  std::vector<Fused> fused_;   // empty where a step is no loop
  std::vector<float> numbers_; // of the constants, for the loops
  std::vector<size_t> results_;
  c10::DeviceIndex core_;
};

} // namespace torch_neuronx::compile
