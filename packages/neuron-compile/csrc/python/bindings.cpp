#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "handlers/handler.h"
#include "python/program.h"
#include "python/steps.h"

namespace py = pybind11;
using torch_neuronx::compile::Program;
using torch_neuronx::compile::Steps;
using torch_neuronx::compile::Xla;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("handlers", [] {
    py::dict found;
    for (const auto& handler : torch_neuronx::compile::handlers()) {
      found[handler.target] = py::capsule(reinterpret_cast<void*>(handler.function));
    }
    return found;
  });

  py::class_<Program>(module, "Program")
      .def(
          py::init([](py::object execute,
                      py::object import_array,
                      py::object export_array,
                      const py::list& inputs,
                      py::list results,
                      c10::DeviceIndex core) {
            return Program(
                Xla{std::move(execute), std::move(import_array), std::move(export_array), std::move(results)},
                inputs,
                core);
          }),
          py::arg("execute"),
          py::arg("import_array"),
          py::arg("export_array"),
          py::arg("inputs"),
          py::arg("results"),
          py::arg("core"))
      .def("__call__", torch::wrap_pybind_function(&Program::call), py::arg("inputs"));

  py::class_<Steps>(module, "Steps")
      .def(
          py::init<
              size_t,
              std::vector<at::Tensor>,
              const std::vector<Steps::Written>&,
              std::vector<size_t>,
              c10::DeviceIndex>(),
          py::arg("inputs"),
          py::arg("constants"),
          py::arg("steps"),
          py::arg("results"),
          py::arg("core"))
      .def("__call__", torch::wrap_pybind_function(&Steps::call), py::arg("inputs"));
}
