#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "xla/ffi/api/c_api.h"

namespace torch_neuronx::distributed {

/// Returns the name of the process group that serves this rank in a collective over these replica groups.
using GroupFinder = std::function<std::string(const std::vector<std::vector<int64_t>>&)>;

/// Called, with the GIL, at the first collective over a partition of the world.
void set_group_finder(GroupFinder finder);

/// The handlers that a program of the emulator calls for StableHLO's collectives, by operation.
const std::vector<std::pair<const char*, XLA_FFI_Handler*>>& graph_handlers();

/// Throws what a handler failed with last, once.
void take_graph_error();

} // namespace torch_neuronx::distributed
