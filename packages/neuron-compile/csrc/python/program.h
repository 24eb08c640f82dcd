// One loaded XLA program, called without a line of Python in between.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>
#include <vector>

namespace torch_neuronx::compile {

// The Python objects of jaxlib that a call needs.
struct __attribute__((visibility("hidden"))) Xla {
  pybind11::object execute;      // execute_sharded, bound to the program
  pybind11::object device;       // that its arrays are on
  pybind11::object import_array; // a DLPack capsule and a device to an array
  pybind11::object export_array; // an array to a DLPack capsule
};

class __attribute__((visibility("hidden"))) Program {
 public:
  Program(Xla xla, size_t inputs, c10::DeviceIndex core);

  // Runs on contiguous or other tensors of the core, whose shapes and dtypes are the caller's promise. Results are device
  // memory, adopted without a copy. Raises what XLA raises, and ValueError for another number of inputs.
  pybind11::list call(const pybind11::list& inputs);

 private:
  // Arrays of one input by address: a training step alternates between a few.
  using Imports = std::vector<std::pair<const void*, pybind11::object>>;

  pybind11::object import(Imports& known, const at::Tensor& tensor);

  Xla xla_;
  std::vector<Imports> imports_;
  c10::DeviceIndex core_;
  size_t oldest_ = 0;
};

} // namespace torch_neuronx::compile
