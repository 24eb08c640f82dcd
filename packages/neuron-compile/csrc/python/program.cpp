#include "program.h"

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch_neuronx/alias.h>
#include <torch_neuronx/device.h>
#include <torch_neuronx/kernel_scope.h>

#include "handlers/handler.h"

namespace py = pybind11;

namespace torch_neuronx::compile {
namespace {

constexpr size_t kImportsPerInput = 16;
constexpr uintptr_t kAlignment = 64; // of what XLA:CPU reads in place
constexpr const char* kFresh = "dltensor";
constexpr const char* kTaken = "used_dltensor";

// Where an array's elements are. jaxlib's own `unsafe_buffer_pointer` imports jax.
const void* address_of(const py::object& capsule) {
  const auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kFresh));
  if (managed == nullptr) {
    throw py::error_already_set();
  }
  return static_cast<const char*>(managed->dl_tensor.data) + managed->dl_tensor.byte_offset;
}

at::Tensor tensor_from(const py::object& capsule) {
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kFresh));
  if (managed == nullptr || PyCapsule_SetName(capsule.ptr(), kTaken) != 0) {
    throw py::error_already_set();
  }
  return at::fromDLPack(managed);
}

} // namespace

Program::Program(Xla xla, const py::list& inputs, c10::DeviceIndex core) : xla_(std::move(xla)), core_(core) {
  inputs_.reserve(inputs.size());
  for (const auto& handle : inputs) {
    auto description = py::reinterpret_borrow<py::object>(handle);
    auto dtype = py::dtype::from_args(description.attr("dtype"));
    auto shape = description.attr("shape").cast<std::vector<int64_t>>();
    inputs_.push_back({std::move(description), std::move(dtype), std::move(shape), {}});
  }
}

py::object Program::import(Input& input, const at::Tensor& tensor) {
  const void* address = tensor.const_data_ptr();
  for (const auto& [where, array] : input.known) {
    if (where == address && address != nullptr) {
      return array;
    }
  }
  if (tensor.sizes() != input.shape || tensor.itemsize() != static_cast<size_t>(input.dtype.itemsize())) {
    throw py::value_error(
        "The program takes a tensor of " + c10::str(c10::IntArrayRef(input.shape)) + " with " +
        std::to_string(input.dtype.itemsize()) + " bytes per element, and got one of " + c10::str(tensor.sizes()) +
        " with " + std::to_string(tensor.itemsize()) + ".");
  }
  const bool empty = address == nullptr || tensor.numel() == 0;
  // A view of the address that does not keep its memory: remembered, it would hold the last activations of every graph.
  // It stays right for whatever tensor of this input is there later.
  const auto view =
      empty ? py::array(input.dtype, input.shape) : py::array(input.dtype, input.shape, address, py::none());
  py::list views;
  views.append(view);
  // XLA copies what is not aligned: before it returns if it is told to, else whenever a thread of its own gets to it.
  const bool aligned = reinterpret_cast<uintptr_t>(address) % kAlignment == 0;
  auto array = xla_.import_array(input.description, py::arg("xs") = views, py::arg("force_copy") = !aligned);
  // A copy must not be remembered.
  if (aligned && !empty && address_of(xla_.export_array(array)) == address) {
    if (input.known.size() < kImportsPerInput) {
      input.known.emplace_back(address, array);
    } else {
      input.known[oldest_++ % kImportsPerInput] = {address, array};
    }
  }
  return array;
}

py::list Program::call(const py::list& inputs) {
  if (C10_UNLIKELY(in_bad_fork())) { // XLA's threads are the parent's
    raise_bad_fork();
  }
  if (inputs.size() != inputs_.size()) {
    throw py::value_error(
        "The program takes " + std::to_string(inputs_.size()) + " inputs and got " + std::to_string(inputs.size()) +
        ".");
  }
  static PyObject* const consume = PyUnicode_InternFromString("consume_with_handlers");
  const at::AutoDispatchBelowADInplaceOrView raw;
  const KernelScope scope(core_);
  std::vector<at::Tensor> alive; // contiguous copies must outlive the call
  py::list arrays(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    PyObject* object = PyList_GET_ITEM(inputs.ptr(), static_cast<Py_ssize_t>(i));
    if (!THPVariable_Check(object)) {
      throw py::type_error("Input " + std::to_string(i) + " of the program is no tensor.");
    }
    const auto& tensor = THPVariable_Unpack(object);
    py::object array;
    if (C10_LIKELY(tensor.is_contiguous())) {
      array = import(inputs_[i], tensor);
    } else {
      alive.push_back(tensor.contiguous());
      array = import(inputs_[i], alive.back());
    }
    PyList_SET_ITEM(arrays.ptr(), static_cast<Py_ssize_t>(i), array.release().ptr());
  }
  const RunningProgram running;
  const auto results = py::reinterpret_steal<py::object>(PyObject_CallOneArg(xla_.execute.ptr(), arrays.ptr()));
  if (!results) {
    throw py::error_already_set();
  }
  const auto made =
      py::reinterpret_steal<py::list>(PyObject_CallMethodOneArg(results.ptr(), consume, xla_.handlers.ptr()));
  if (!made) {
    throw py::error_already_set();
  }
  py::list outputs(made.size());
  for (size_t i = 0; i < made.size(); ++i) {
    PyObject* array = PyList_GET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i));
    const auto capsule = py::reinterpret_steal<py::object>(PyObject_CallOneArg(xla_.export_array.ptr(), array));
    if (!capsule) {
      throw py::error_already_set();
    }
    PyList_SET_ITEM(outputs.ptr(), static_cast<Py_ssize_t>(i), THPVariable_Wrap(adopt(tensor_from(capsule), core_)));
  }
  return outputs;
}

} // namespace torch_neuronx::compile
