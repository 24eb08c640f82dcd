// One loaded XLA program, called without a line of Python in between.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/numpy.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>
#include <vector>

namespace torch_neuronx::compile {

// The Python objects of jaxlib that a call needs.
struct __attribute__((visibility("hidden"))) Xla {
  pybind11::object execute;      // execute_sharded, bound to the program
  pybind11::object import_array; // a description, and a list `xs` of one NumPy array, to an array; see `Arrays`
  pybind11::object export_array; // an array to a DLPack capsule
  pybind11::list handlers;       // of each result: what makes its array
};

class __attribute__((visibility("hidden"))) Program {
 public:
  // `inputs` are descriptions: what has the `shape` of an array and its NumPy `dtype`.
  Program(Xla xla, const pybind11::list& inputs, c10::DeviceIndex core);

  // Runs on contiguous or other tensors of the core, whose shapes and dtypes are the caller's promise. Results are device
  // memory, adopted without a copy. Raises what XLA raises, and ValueError for another number of inputs, or for an input
  // that is seen to be another than the program's.
  pybind11::list call(const pybind11::list& inputs);

 private:
  struct __attribute__((visibility("hidden"))) Input {
    pybind11::object description;
    pybind11::dtype dtype;
    std::vector<int64_t> shape;
    // Arrays by address: a training step alternates between a few.
    std::vector<std::pair<const void*, pybind11::object>> known;
  };

  pybind11::object import(Input& input, const at::Tensor& tensor);

  Xla xla_;
  std::vector<Input> inputs_;
  c10::DeviceIndex core_;
  size_t oldest_ = 0;
};

} // namespace torch_neuronx::compile
