#include <pybind11/pybind11.h>

#include "handlers/handler.h"

namespace py = pybind11;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("handlers", [] {
    py::dict found;
    for (const auto& handler : torch_neuronx::compile::handlers()) {
      found[handler.target] = py::capsule(reinterpret_cast<void*>(handler.function));
    }
    return found;
  });
}
