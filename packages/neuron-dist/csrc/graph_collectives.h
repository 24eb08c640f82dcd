#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "process_group.h"
#include "xla/ffi/api/c_api.h"

namespace torch_neuronx::distributed {

/// Returns the name of the process group that serves this rank in a collective over these replica groups.
using GroupFinder = std::function<std::string(const std::vector<std::vector<int64_t>>&)>;

/// Returns the part of the process group of that name which serves this device, without torch's wrapper around it.
using BackendFinder = std::function<c10::intrusive_ptr<ProcessGroupNeuron>(const std::string&)>;

/// Called, with the GIL, at the first collective over a partition of the world.
void set_group_finder(GroupFinder finder);
/// Called, with the GIL, for groups that torch has wrapped (TORCH_DISTRIBUTED_DEBUG=DETAIL): the wrapper's header needs
/// Gloo's, which are not in the torch wheel.
void set_backend_finder(BackendFinder finder);

/// The handlers that a program of the emulator calls for StableHLO's collectives, by operation.
const std::vector<std::pair<const char*, XLA_FFI_Handler*>>& graph_handlers();

/// Throws what a handler failed with last, once.
void take_graph_error();

} // namespace torch_neuronx::distributed
