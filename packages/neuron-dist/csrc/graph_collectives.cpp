#include "graph_collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <string_view>

#include "xla/ffi/api/ffi.h"

namespace torch_neuronx::distributed {
namespace {

namespace ffi = xla::ffi;
using Integers = ffi::Span<const int64_t>;
using Groups = std::vector<std::vector<int64_t>>;
using GroupPtr = c10::intrusive_ptr<ProcessGroupNeuron>;

/// The process group of a collective, and where in it the members of the replica group are, in the latter's order.
struct Members {
  GroupPtr group;
  std::vector<int64_t> places;

  int64_t size() const {
    return static_cast<int64_t>(places.size());
  }
  bool in_order() const {
    return std::is_sorted(places.begin(), places.end());
  }
  /// This rank's place in the replica group.
  int64_t position() const {
    return std::find(places.begin(), places.end(), group->getRank()) - places.begin();
  }
};

GroupFinder& group_finder() {
  // Never destroyed: it holds a Python callable.
  static auto* finder = new GroupFinder();
  return *finder;
}

BackendFinder& backend_finder() {
  static auto* finder = new BackendFinder();
  return *finder;
}

struct Failure {
  std::mutex mutex;
  std::exception_ptr error;
};

Failure& failure() {
  static auto* latest = new Failure();
  return *latest;
}

// Finding the group ---------------------------------------------------------------------------------------------------

Groups groups_of(Integers flat, int64_t size) {
  TORCH_CHECK(size > 0, "A collective has replica groups of no ranks.");
  Groups groups;
  for (size_t start = 0; start + size <= flat.size(); start += size) {
    const auto* row = flat.begin() + start;
    groups.emplace_back();
    std::copy_if(row, row + size, std::back_inserter(groups.back()), [](int64_t rank) { return rank >= 0; });
  }
  return groups;
}

/// Binds the replica group with exactly the members of `group`; without places where there is none.
Members bind(GroupPtr group, const Groups& groups) {
  const auto ranks = group->world_ranks();
  for (const auto& candidate : groups) {
    if (candidate.size() != ranks.size()) {
      continue;
    }
    std::vector<int64_t> places;
    for (const auto rank : candidate) {
      const auto place = std::find(ranks.begin(), ranks.end(), rank);
      if (place == ranks.end()) {
        break;
      }
      places.push_back(place - ranks.begin());
    }
    if (places.size() == ranks.size()) {
      return {std::move(group), std::move(places)};
    }
  }
  return {};
}

Members named_members(const std::string& name, const Groups& groups) {
  const auto process_group = c10d::resolve_process_group(name);
  auto backend = process_group->getBackend(c10::DeviceType::PrivateUse1);
  auto group = c10::dynamic_intrusive_pointer_cast<ProcessGroupNeuron>(backend);
  if (!group) {
    const pybind11::gil_scoped_acquire gil;
    group = backend_finder()(name);
  }
  return group ? bind(std::move(group), groups) : Members{};
}

Members find_members(const Groups& groups) {
  static std::mutex mutex;
  static std::map<Groups, std::string> known;
  std::string name;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = known.find(groups);
    if (found != known.end()) {
      name = found->second;
    }
  }
  if (!name.empty()) {
    try {
      auto members = named_members(name, groups);
      if (members.group) { // names are given again once all groups are destroyed
        return members;
      }
    } catch (const c10::Error&) {
      // The group is gone: looked for anew below.
    }
  }
  {
    const pybind11::gil_scoped_acquire gil;
    name = group_finder()(groups);
  }
  auto members = named_members(name, groups);
  TORCH_CHECK(members.group, "The process group ", name, " is not of backend neuron, or has other ranks.");
  const std::lock_guard<std::mutex> lock(mutex);
  known[groups] = name;
  return members;
}

// Buffers -------------------------------------------------------------------------------------------------------------

at::ScalarType dtype_of(ffi::DataType dtype) {
  switch (dtype) {
    case ffi::DataType::PRED:
      return at::kBool;
    case ffi::DataType::S8:
      return at::kChar;
    case ffi::DataType::U8:
      return at::kByte;
    case ffi::DataType::S16:
      return at::kShort;
    case ffi::DataType::U16:
      return at::kUInt16;
    case ffi::DataType::S32:
      return at::kInt;
    case ffi::DataType::U32:
      return at::kUInt32;
    case ffi::DataType::S64:
      return at::kLong;
    case ffi::DataType::U64:
      return at::kUInt64;
    case ffi::DataType::F16:
      return at::kHalf;
    case ffi::DataType::BF16:
      return at::kBFloat16;
    case ffi::DataType::F32:
      return at::kFloat;
    case ffi::DataType::F64:
      return at::kDouble;
    case ffi::DataType::F8E4M3FN:
      return at::kFloat8_e4m3fn;
    case ffi::DataType::F8E5M2:
      return at::kFloat8_e5m2;
    default:
      TORCH_CHECK(false, "No collective moves XLA's dtype ", static_cast<int>(dtype), ".");
  }
}

at::Tensor tensor_of(const ffi::AnyBuffer& buffer) {
  const auto sizes = buffer.dimensions();
  return at::from_blob(
      buffer.untyped_data(), {sizes.begin(), sizes.size()}, at::TensorOptions().dtype(dtype_of(buffer.element_type())));
}

template <typename T>
T required(const ffi::Dictionary& attributes, const char* name) {
  auto value = attributes.get<T>(name);
  TORCH_CHECK(value.has_value(), "A collective lacks the attribute ", name, ".");
  return *value;
}

// Collectives ---------------------------------------------------------------------------------------------------------

c10d::ReduceOp reduction_of(std::string_view name) {
  using Op = c10d::ReduceOp;
  static const std::map<std::string_view, Op::RedOpType> operations = {
      {"add", Op::SUM},
      {"multiply", Op::PRODUCT},
      {"minimum", Op::MIN},
      {"maximum", Op::MAX},
      {"and", Op::BAND},
      {"or", Op::BOR},
      {"xor", Op::BXOR},
  };
  const auto found = operations.find(name);
  TORCH_CHECK(found != operations.end(), "No collective reduces with ", std::string(name), ".");
  return found->second;
}

/// Reduces `values` over all members. The result is in `place` if the reduction is computed in the values' dtype, else
/// in memory of its own.
at::Tensor reduced(
    const Members& members, c10d::OpType type, const at::Tensor& values, at::Tensor place, std::string_view reduction) {
  const auto plan = plan_reduction(reduction_of(reduction), values.scalar_type());
  if (!place.defined() || plan.copies(values.scalar_type())) {
    place = at::empty(values.sizes(), values.options().dtype(plan.compute));
  }
  place.copy_(values);
  c10d::AllreduceOptions options;
  options.reduceOp = plan.carried;
  TensorList carried{carried_view(place)};
  members.group->run(Call::on(type, values).reducing(plan.carried), [&](auto& carrier) {
    return carrier.allreduce(carried, options);
  });
  return place;
}

void all_reduce(const Members& members, const at::Tensor& x, at::Tensor y, const ffi::Dictionary& attributes) {
  const auto sum = reduced(members, c10d::OpType::ALLREDUCE, x, y, required<std::string_view>(attributes, "reduction"));
  if (!sum.is_same(y)) {
    y.copy_(sum);
  }
}

void reduce_scatter(const Members& members, const at::Tensor& x, at::Tensor y, const ffi::Dictionary& attributes) {
  const auto dim = required<int64_t>(attributes, "scatter_dimension");
  const auto reduction = required<std::string_view>(attributes, "reduction");
  const auto sum = reduced(members, c10d::OpType::_REDUCE_SCATTER_BASE, x, {}, reduction);
  y.copy_(sum.narrow(dim, members.position() * y.size(dim), y.size(dim)));
}

void all_gather(const Members& members, const at::Tensor& x, at::Tensor y, const ffi::Dictionary& attributes) {
  const auto dim = required<int64_t>(attributes, "all_gather_dim");
  const bool direct = dim == 0 && members.in_order();
  auto sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), members.size());
  const auto gathered = direct ? y : at::empty(sizes, x.options());
  auto target = flat(carried_view(gathered));
  auto source = flat(carried_view(x));
  members.group->run(Call::on(c10d::OpType::_ALLGATHER_BASE, x), [&](auto& carrier) {
    return carrier._allgather_base(target, source, {});
  });
  if (!direct) {
    for (int64_t i = 0; i < members.size(); ++i) {
      y.narrow(dim, i * x.size(dim), x.size(dim)).copy_(gathered.select(0, members.places[i]));
    }
  }
}

void all_to_all(const Members& members, const at::Tensor& x, at::Tensor y, const ffi::Dictionary& attributes) {
  const auto split = required<int64_t>(attributes, "split_dimension");
  const auto joined = required<int64_t>(attributes, "concat_dimension");
  const auto count = required<int64_t>(attributes, "split_count");
  TORCH_CHECK(count == members.size(), "An all_to_all among ", members.size(), " ranks has ", count, " parts.");
  const bool direct = split == 0 && joined == 0 && members.in_order();
  const auto part = x.size(split) / count;
  auto sizes = x.sizes().vec();
  sizes[split] = part;
  sizes.insert(sizes.begin(), count);
  auto sent = x;
  auto received = y;
  if (!direct) {
    sent = at::empty(sizes, x.options());
    received = at::empty(sizes, x.options());
    for (int64_t i = 0; i < count; ++i) {
      sent.select(0, members.places[i]).copy_(x.narrow(split, i * part, part));
    }
  }
  auto target = flat(carried_view(received));
  auto source = flat(carried_view(sent));
  std::vector<int64_t> even;
  const std::vector<int64_t> parts(static_cast<size_t>(count), x.numel() / count);
  members.group->run({c10d::OpType::ALLTOALL_BASE, -1, x.scalar_type(), parts, parts}, [&](auto& carrier) {
    return carrier.alltoall_base(target, source, even, even, {});
  });
  if (!direct) {
    const auto width = x.size(joined) / (joined == split ? count : 1);
    for (int64_t i = 0; i < count; ++i) {
      y.narrow(joined, i * width, width).copy_(received.select(0, members.places[i]));
    }
  }
}

void collective_broadcast(const Members& members, const at::Tensor& x, at::Tensor y, const ffi::Dictionary&) {
  if (members.position() == 0) {
    y.copy_(x);
  }
  c10d::BroadcastOptions options;
  options.rootRank = members.places[0];
  TensorList carried{carried_view(y)};
  members.group->run(Call::on(c10d::OpType::BROADCAST, y).rooted(options.rootRank), [&](auto& carrier) {
    return carrier.broadcast(carried, options);
  });
}

// Handlers ------------------------------------------------------------------------------------------------------------

using Collective = void (*)(const Members&, const at::Tensor&, at::Tensor, const ffi::Dictionary&);

std::string describe(const char* name, const Members& members) {
  if (!members.group) {
    return c10::str("In ", name, " of a compiled graph");
  }
  return c10::str(
      "In ",
      name,
      " of a compiled graph, on rank ",
      members.group->world_ranks()[members.group->getRank()],
      " of the group of ranks ",
      members.group->world_ranks());
}

ffi::Error run(
    const char* name,
    Collective collective,
    ffi::RemainingArgs& operands,
    ffi::RemainingRets& results,
    const ffi::Dictionary& attributes) {
  Members members;
  std::exception_ptr error;
  std::string words;
  try {
    try {
      const at::AutoDispatchBelowADInplaceOrView raw;
      const OpenMemory open;
      members = find_members(
          groups_of(required<Integers>(attributes, "replica_groups"), required<int64_t>(attributes, "group_size")));
      for (size_t i = 1; i < operands.size(); ++i) { // the first of each is the token that keeps the order
        collective(
            members,
            tensor_of(*operands.get<ffi::AnyBuffer>(i)),
            tensor_of(**results.get<ffi::AnyBuffer>(i)),
            attributes);
      }
      return ffi::Error::Success();
    } catch (const c10::DistBackendError&) {
      throw; // says all that the same collective says in eager mode
    } catch (c10::Error& known) {
      known.add_context(describe(name, members));
      throw;
    } catch (pybind11::error_already_set&) {
      throw;
    } catch (const std::exception& other) { // Gloo's own, which say neither what nor where
      C10_THROW_ERROR(DistBackendError, c10::str(describe(name, members), ": ", other.what()));
    }
  } catch (const c10::Error& known) {
    error = std::current_exception();
    words = known.what_without_backtrace();
  } catch (const std::exception& other) {
    error = std::current_exception();
    words = describe(name, members) + ": the process group was not found";
  }
  auto& latest = failure();
  const std::lock_guard<std::mutex> lock(latest.mutex);
  latest.error = error;
  return ffi::Error::Internal(words);
}

#define NEURON_GRAPH_COLLECTIVE(name)                                                                           \
  ffi::Error name##_call(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) { \
    return run(#name, &name, operands, results, attributes);                                                    \
  }                                                                                                             \
  XLA_FFI_DEFINE_HANDLER(name##_handler, name##_call, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs())

NEURON_GRAPH_COLLECTIVE(all_gather);
NEURON_GRAPH_COLLECTIVE(all_reduce);
NEURON_GRAPH_COLLECTIVE(all_to_all);
NEURON_GRAPH_COLLECTIVE(collective_broadcast);
NEURON_GRAPH_COLLECTIVE(reduce_scatter);

} // namespace

void set_group_finder(GroupFinder finder) {
  group_finder() = std::move(finder);
}

void set_backend_finder(BackendFinder finder) {
  backend_finder() = std::move(finder);
}

const std::vector<std::pair<const char*, XLA_FFI_Handler*>>& graph_handlers() {
  static const std::vector<std::pair<const char*, XLA_FFI_Handler*>> all = {
      {"all_gather", all_gather_handler},
      {"all_reduce", all_reduce_handler},
      {"all_to_all", all_to_all_handler},
      {"collective_broadcast", collective_broadcast_handler},
      {"reduce_scatter", reduce_scatter_handler},
  };
  return all;
}

void take_graph_error() {
  auto& latest = failure();
  std::exception_ptr error;
  {
    const std::lock_guard<std::mutex> lock(latest.mutex);
    error = std::exchange(latest.error, nullptr);
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

} // namespace torch_neuronx::distributed
