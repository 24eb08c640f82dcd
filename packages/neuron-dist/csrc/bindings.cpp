#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/extension.h>

#include "graph_collectives.h"
#include "process_group.h"

namespace py = pybind11;
using torch_neuronx::distributed::ProcessGroupNeuron;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using Options = ProcessGroupNeuron::Options;

  m.def("set_carrier_factory", &torch_neuronx::distributed::set_carrier_factory);
  m.def("set_group_finder", &torch_neuronx::distributed::set_group_finder);
  m.def("set_backend_finder", &torch_neuronx::distributed::set_backend_finder);
  m.def("take_graph_error", torch::wrap_pybind_function(&torch_neuronx::distributed::take_graph_error));
  m.def("graph_handlers", [] {
    py::dict handlers;
    for (const auto& [operation, handler] : torch_neuronx::distributed::graph_handlers()) {
      handlers[operation] = py::capsule(reinterpret_cast<void*>(handler));
    }
    return handlers;
  });

  py::class_<ProcessGroupNeuron, c10::intrusive_ptr<ProcessGroupNeuron>, c10d::Backend> group(m, "ProcessGroupNeuron");

  py::class_<Options, c10::intrusive_ptr<Options>, c10d::Backend::Options>(group, "Options")
      .def(py::init<std::chrono::milliseconds>(), py::arg("timeout") = kBackendDefaultTimeout)
      .def_readwrite("session", &Options::session)
      .def("__copy__", [](const Options& self) { return c10::make_intrusive<Options>(self); })
      .def("__deepcopy__", [](const Options& self, const py::dict&) { return c10::make_intrusive<Options>(self); });

  group
      .def(
          py::init<const c10::intrusive_ptr<c10d::Store>&, int, int, c10::intrusive_ptr<Options>>(),
          py::arg("store"),
          py::arg("rank"),
          py::arg("size"),
          py::arg("options"))
      .def_property_readonly("options", &ProcessGroupNeuron::getBackendOptions)
      // torch calls this on the ranks that stay outside a new group when the default group has a bound device.
      // Making a group takes nothing from them here.
      .def("perform_nocolor_split", [](const ProcessGroupNeuron&, const at::Device&) {});
}
