// Errors that reach the user as classes of torch_neuronx.errors.
#pragma once

#include <functional>
#include <string>

namespace torch_neuronx {

enum class ErrorKind { kDevice, kUnsupportedOperator, kUnsupportedDtype, kIntegerRange };

// Installed by the bindings: raises the Python class of the kind.
void set_error_raiser(std::function<void(ErrorKind, const std::string&)> raiser);
[[noreturn]] void raise_error(ErrorKind kind, const std::string& message);

} // namespace torch_neuronx
