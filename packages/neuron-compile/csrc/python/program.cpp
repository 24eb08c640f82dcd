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
constexpr const char* kFresh = "dltensor";
constexpr const char* kTaken = "used_dltensor";

void release_unused(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kFresh)) {
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kFresh));
    managed->deleter(managed);
  }
}

at::Tensor tensor_from(const py::object& capsule) {
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kFresh));
  if (managed == nullptr || PyCapsule_SetName(capsule.ptr(), kTaken) != 0) {
    throw py::error_already_set();
  }
  return at::fromDLPack(managed);
}

} // namespace

Program::Program(Xla xla, size_t inputs, c10::DeviceIndex core) : xla_(std::move(xla)), imports_(inputs), core_(core) {}

py::object Program::import(Imports& known, const at::Tensor& tensor) {
  const void* address = tensor.const_data_ptr();
  for (const auto& [where, array] : known) {
    if (where == address && address != nullptr) {
      return array;
    }
  }
  // A view of the address that does not keep its memory: remembered, it would hold the last activations of every graph.
  // It stays right for whatever tensor of this input is there later.
  const auto options = at::TensorOptions().dtype(tensor.scalar_type());
  const auto view = address == nullptr || tensor.numel() == 0
      ? at::empty(tensor.sizes(), options)
      : at::from_blob(const_cast<void*>(address), tensor.sizes(), options); // NOLINT: XLA only reads its inputs
  const auto capsule = py::reinterpret_steal<py::object>(PyCapsule_New(at::toDLPack(view), kFresh, &release_unused));
  auto array = xla_.import_array(capsule, xla_.device, py::none());
  // XLA copies what is not aligned, and a copy must not be remembered.
  if (address != nullptr && tensor.numel() != 0 &&
      array.attr("unsafe_buffer_pointer")().cast<uintptr_t>() == reinterpret_cast<uintptr_t>(address)) {
    if (known.size() < kImportsPerInput) {
      known.emplace_back(address, array);
    } else {
      known[oldest_++ % kImportsPerInput] = {address, array};
    }
  }
  return array;
}

py::list Program::call(const py::list& inputs) {
  if (C10_UNLIKELY(in_bad_fork())) { // XLA's threads are the parent's
    raise_bad_fork();
  }
  if (inputs.size() != imports_.size()) {
    throw py::value_error(
        "The program takes " + std::to_string(imports_.size()) + " inputs and got " + std::to_string(inputs.size()) +
        ".");
  }
  static PyObject* const disassemble = PyUnicode_InternFromString("disassemble_into_single_device_arrays");
  const at::AutoDispatchBelowADInplaceOrView raw;
  const KernelScope scope(core_);
  std::vector<at::Tensor> alive; // contiguous copies must outlive the call
  py::list arrays(imports_.size());
  for (size_t i = 0; i < imports_.size(); ++i) {
    PyObject* object = PyList_GET_ITEM(inputs.ptr(), static_cast<Py_ssize_t>(i));
    if (!THPVariable_Check(object)) {
      throw py::type_error("Input " + std::to_string(i) + " of the program is no tensor.");
    }
    const auto& tensor = THPVariable_Unpack(object);
    py::object array;
    if (C10_LIKELY(tensor.is_contiguous())) {
      array = import(imports_[i], tensor);
    } else {
      alive.push_back(tensor.contiguous());
      array = import(imports_[i], alive.back());
    }
    PyList_SET_ITEM(arrays.ptr(), static_cast<Py_ssize_t>(i), array.release().ptr());
  }
  const RunningProgram running;
  const auto results = py::reinterpret_steal<py::object>(PyObject_CallOneArg(xla_.execute.ptr(), arrays.ptr()));
  if (!results) {
    throw py::error_already_set();
  }
  const auto shards = py::reinterpret_steal<py::list>(PyObject_CallMethodNoArgs(results.ptr(), disassemble));
  if (!shards) {
    throw py::error_already_set();
  }
  py::list outputs(shards.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    PyObject* shard = PyList_GET_ITEM(PyList_GET_ITEM(shards.ptr(), static_cast<Py_ssize_t>(i)), 0);
    const auto capsule = py::reinterpret_steal<py::object>(PyObject_CallOneArg(xla_.export_array.ptr(), shard));
    if (!capsule) {
      throw py::error_already_set();
    }
    PyList_SET_ITEM(outputs.ptr(), static_cast<Py_ssize_t>(i), THPVariable_Wrap(adopt(tensor_from(capsule), core_)));
  }
  return outputs;
}

} // namespace torch_neuronx::compile
