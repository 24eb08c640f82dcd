#pragma once

#include <torch/csrc/utils/pybind.h>

#include <optional>

namespace torch_neuronx::distributed {

/// Gives up the GIL for a scope if this thread has it. Whoever waits for other threads in a destructor needs this: a
/// Python callback in one of them needs the GIL to end.
class __attribute__((visibility("hidden"))) WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() && PyGILState_Check()) {
      released_.emplace();
    }
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

} // namespace torch_neuronx::distributed
