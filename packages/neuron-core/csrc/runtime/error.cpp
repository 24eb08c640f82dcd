#include "error.h"

#include <c10/util/Exception.h>

namespace torch_neuronx {

namespace {

std::function<void(ErrorKind, const std::string&)>& error_raiser() {
  static auto* raiser = new std::function<void(ErrorKind, const std::string&)>();
  return *raiser;
}

} // namespace

void set_error_raiser(std::function<void(ErrorKind, const std::string&)> raiser) {
  error_raiser() = std::move(raiser);
}

void raise_error(ErrorKind kind, const std::string& message) {
  if (error_raiser()) {
    error_raiser()(kind, message);
  }
  TORCH_CHECK(false, message); // the bindings are not loaded
}

} // namespace torch_neuronx
