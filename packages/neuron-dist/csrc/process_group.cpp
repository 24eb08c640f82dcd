#include "process_group.h"

#include <ATen/Functions.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <algorithm>
#include <array>
#include <numeric>

#include "gil.h"

namespace torch_neuronx::distributed {
namespace {

using c10d::OpType;

CarrierFactory& carrier_factory() {
  // Never destroyed: it holds a Python callable, and groups may outlive the interpreter.
  static auto* factory = new CarrierFactory();
  return *factory;
}

constexpr int kAnyRank = -1;

std::shared_ptr<Cargo> cargo_for_move() {
  return std::make_shared<Cargo>();
}

TensorList flatten(const TensorLists& lists) {
  TensorList flat;
  for (const auto& list : lists) {
    flat.insert(flat.end(), list.begin(), list.end());
  }
  return flat;
}

std::vector<int64_t> element_counts(const TensorList& tensors) {
  std::vector<int64_t> counts;
  for (const auto& tensor : tensors) {
    counts.push_back(tensor.numel());
  }
  return counts;
}

int64_t bytes_of(const TensorList& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

/// How many elements of `tensor` are for each rank, or from each: `splits` are its rows, none means equal parts.
std::vector<int64_t> elements_by_rank(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks) {
  if (splits.empty()) {
    return std::vector<int64_t>(static_cast<size_t>(ranks), tensor.numel() / ranks);
  }
  const auto width = tensor.dim() == 0 || tensor.size(0) == 0 ? 0 : tensor.numel() / tensor.size(0);
  auto counts = splits;
  for (auto& count : counts) {
    count *= width;
  }
  return counts;
}

/// What the group keeps in its store is apart from what an earlier attempt of a job has left there.
c10::intrusive_ptr<c10d::Store> store_of_session(c10::intrusive_ptr<c10d::Store> store, const std::string& session) {
  if (session.empty()) {
    return store;
  }
  return c10::make_intrusive<c10d::PrefixStore>(session, std::move(store));
}

void check_single(const char* op, const TensorList& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, op, " takes one tensor per rank, got ", tensors.size(), ".");
}

} // namespace

void set_carrier_factory(CarrierFactory factory) {
  carrier_factory() = std::move(factory);
}

ProcessGroupNeuron::ProcessGroupNeuron(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options)
    : c10d::Backend(rank, size),
      // A prefix of its own, because torch gives the parts of a split group one store, and another may be Gloo too.
      carrier_(
          carrier_factory()(
              c10::make_intrusive<c10d::PrefixStore>("neuron", store_of_session(store, options->session)),
              rank,
              size,
              options->timeout)),
      options_(std::move(options)),
      roll_(
          std::make_shared<Roll>(
              c10::make_intrusive<c10d::PrefixStore>("neuron_roll", store_of_session(store, options_->session)),
              rank,
              size,
              options_->group_name,
              options_->global_ranks_in_group)) {
  init();
}

ProcessGroupNeuron::~ProcessGroupNeuron() {
  waiters_->stop();
  WithoutGil without_gil;
  roll_->stop();
  carrier_.reset();
}

void ProcessGroupNeuron::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  carrier_->setTimeout(timeout);
}

void ProcessGroupNeuron::abort() {
  carrier_->abort();
}

void ProcessGroupNeuron::shutdown() {
  waiters_->stop();
  roll_->stop();
  carrier_->shutdown();
}

c10::intrusive_ptr<ProcessGroupNeuron::Options> ProcessGroupNeuron::options_of_part(
    const c10d::Backend::Options& asked) const {
  auto options = c10::make_intrusive<Options>(asked.timeout);
  options->group_name = asked.group_name;
  options->group_desc = asked.group_desc;
  options->session = options_->session;
  return options;
}

BackendPtr ProcessGroupNeuron::split(
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto place = std::find(ranks.begin(), ranks.end(), getRank());
  if (place == ranks.end()) {
    return nullptr;
  }
  auto child = options_of_part(*options);
  const auto& parents = options_->global_ranks_in_group;
  for (const int rank : ranks) {
    child->global_ranks_in_group.push_back(parents.empty() ? static_cast<uint64_t>(rank) : parents.at(rank));
  }
  return c10::make_intrusive<ProcessGroupNeuron>(
      store->clone(), static_cast<int>(place - ranks.begin()), static_cast<int>(ranks.size()), std::move(child));
}

BackendPtr ProcessGroupNeuron::merge(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::Backend::Options>& options,
    const int& rank,
    const int& size) {
  return c10::make_intrusive<ProcessGroupNeuron>(store->clone(), rank, size, options_of_part(*options));
}

std::vector<int64_t> ProcessGroupNeuron::world_ranks() const {
  const auto& given = options_->global_ranks_in_group;
  if (!given.empty()) {
    return {given.begin(), given.end()};
  }
  std::vector<int64_t> all(static_cast<size_t>(getSize())); // the world itself has no list
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void ProcessGroupNeuron::startCoalescing() {
  TORCH_CHECK(!coalescing_, "startCoalescing was called twice. End the first batch with endCoalescing.");
  coalescing_ = true;
}

WorkPtr ProcessGroupNeuron::endCoalescing() {
  TORCH_CHECK(coalescing_, "endCoalescing was called without startCoalescing.");
  coalescing_ = false;
  return c10::make_intrusive<BatchWork>(getRank(), std::exchange(coalesced_, {}));
}

WorkPtr ProcessGroupNeuron::issued(WorkPtr work) {
  if (coalescing_) {
    coalesced_.push_back(work);
  }
  return work;
}

WorkPtr ProcessGroupNeuron::begin(Call call, Start start, std::shared_ptr<Cargo> cargo, TensorList outputs) {
  const auto number = roll_->enter(call);
  WorkPtr carrier;
  try {
    carrier = start();
  } catch (...) { // anything: the transport throws many kinds
    roll_->withdraw(number);
    throw;
  }
  return c10::make_intrusive<CollectiveWork>(
      getRank(), number, std::move(call), std::move(carrier), std::move(cargo), std::move(outputs), roll_);
}

WorkPtr ProcessGroupNeuron::collective(Call call, Start start, std::shared_ptr<Cargo> cargo, TensorList outputs) {
  return issued(begin(std::move(call), start, std::move(cargo), std::move(outputs)));
}

// What torch's wrapper of a group does for calls of eager mode, which calls of graphs do not pass through. Gloo ends a
// process that gets more bytes than it has room for, so sizes must be known before.
void ProcessGroupNeuron::compare_calls(const Call& call) {
  if (c10d::debug_level() != c10d::DebugLevel::Detail) {
    return;
  }
  const std::array<int64_t, 5> words{
      static_cast<int64_t>(call.type), call.count, static_cast<int64_t>(call.dtype), call.root, call.reduction};
  const auto count = static_cast<int64_t>(words.size());
  auto own = at::empty({count}, at::kLong);
  std::copy(words.begin(), words.end(), own.mutable_data_ptr<int64_t>());
  auto all = at::empty({count * getSize()}, at::kLong);
  carrier_->_allgather_base(all, own, {})->wait(kNoTimeout);
  const auto* others = all.const_data_ptr<int64_t>();
  for (int rank = 0; rank < getSize(); ++rank) {
    TORCH_CHECK_WITH(
        DistBackendError,
        std::equal(words.begin(), words.end(), others + count * rank),
        "nothing, for the calls were compared before they began (TORCH_DISTRIBUTED_DEBUG=DETAIL).");
  }
}

void ProcessGroupNeuron::run(const Call& call, const std::function<WorkPtr(c10d::Backend&)>& start) {
  const auto number = roll_->enter(call);
  std::exception_ptr error;
  try {
    compare_calls(call);
    start(*carrier_)->wait(kNoTimeout);
  } catch (...) { // anything: the transport throws many kinds
    error = roll_->explain(number, call, std::current_exception());
  }
  roll_->leave(number);
  if (error) {
    std::rethrow_exception(error);
  }
}

WorkPtr ProcessGroupNeuron::point_to_point(
    OpType type, Start start, std::shared_ptr<Cargo> cargo, TensorList outputs, int peer) {
  WorkPtr carrier;
  try {
    carrier = start();
  } catch (const c10::Error&) {
    throw;                          // wrong arguments
  } catch (const std::exception&) { // the transport's: the connection is closed
    std::rethrow_exception(roll_->explain_peer(peer, name_of(type), std::current_exception()));
  }
  return issued(
      c10::make_intrusive<PointToPointWork>(
          getRank(), type, std::move(carrier), std::move(cargo), std::move(outputs), waiters_, roll_, peer));
}

WorkPtr ProcessGroupNeuron::broadcast(TensorList& tensors, const c10d::BroadcastOptions& options) {
  auto cargo = cargo_for_move();
  auto carried = cargo->load(tensors, options.rootRank == getRank() ? Access::Read : Access::Write);
  return collective(
      Call::on(OpType::BROADCAST, tensors.at(0)).rooted(options.rootRank),
      [&] { return carrier_->broadcast(carried, options); },
      cargo,
      tensors);
}

WorkPtr ProcessGroupNeuron::allreduce(TensorList& tensors, const c10d::AllreduceOptions& options) {
  check_single("all_reduce", tensors);
  auto plan = plan_reduction(options.reduceOp, tensors[0].scalar_type());
  auto carried_options = options;
  carried_options.reduceOp = plan.carried;
  auto cargo = std::make_shared<Cargo>(std::move(plan), getSize());
  auto carried = cargo->load(tensors, Access::ReadWrite);
  return collective(
      Call::on(OpType::ALLREDUCE, tensors[0]).reducing(carried_options.reduceOp),
      [&] { return carrier_->allreduce(carried, carried_options); },
      cargo,
      tensors);
}

WorkPtr ProcessGroupNeuron::allreduce_coalesced(TensorList& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce_coalesced needs at least one tensor.");
  auto plan = plan_reduction(options.reduceOp, tensors[0].scalar_type());
  auto carried_options = options;
  carried_options.reduceOp = plan.carried;
  auto cargo = std::make_shared<Cargo>(std::move(plan), getSize());
  auto carried = cargo->load(tensors, Access::ReadWrite);
  return collective(
      Call::on(OpType::ALLREDUCE_COALESCED, tensors).reducing(carried_options.reduceOp),
      [&] { return carrier_->allreduce_coalesced(carried, carried_options); },
      cargo,
      tensors);
}

WorkPtr ProcessGroupNeuron::reduce(TensorList& tensors, const c10d::ReduceOptions& options) {
  check_single("reduce", tensors);
  auto plan = plan_reduction(options.reduceOp, tensors[0].scalar_type());
  auto carried_options = options;
  carried_options.reduceOp = plan.carried;
  auto cargo = std::make_shared<Cargo>(std::move(plan), getSize());
  auto carried = cargo->load(tensors, options.rootRank == getRank() ? Access::ReadWrite : Access::Spoil);
  return collective(
      Call::on(OpType::REDUCE, tensors[0]).reducing(carried_options.reduceOp).rooted(options.rootRank),
      [&] { return carrier_->reduce(carried, carried_options); },
      cargo,
      tensors);
}

WorkPtr ProcessGroupNeuron::allgather(TensorLists& outputs, TensorList& inputs, const c10d::AllgatherOptions& options) {
  auto cargo = cargo_for_move();
  auto sources = cargo->load(inputs, Access::Read);
  auto targets = cargo->load(outputs, Access::Write);
  return collective(
      Call::on(OpType::ALLGATHER, inputs),
      [&] { return carrier_->allgather(targets, sources, options); },
      cargo,
      flatten(outputs));
}

WorkPtr ProcessGroupNeuron::gather_whole(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(
      output.numel() == input.numel() * getSize(),
      "all_gather_single over ",
      getSize(),
      " ranks has an output of shape ",
      output.sizes(),
      " for an input of shape ",
      input.sizes(),
      ". The output must hold one input per rank.");
  auto cargo = cargo_for_move();
  // Flat, because Gloo takes outputs that concatenate the inputs, and torch also allows those that stack them.
  auto source = flat(cargo->load(input, Access::Read));
  auto target = flat(cargo->load(output, Access::Write));
  return begin(
      Call::on(OpType::_ALLGATHER_BASE, input),
      [&] { return carrier_->_allgather_base(target, source, options); },
      std::move(cargo),
      {output});
}

WorkPtr ProcessGroupNeuron::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return issued(gather_whole(output, input, options));
}

WorkPtr ProcessGroupNeuron::allgather_coalesced(
    TensorLists& outputs, TensorList& inputs, const c10d::AllgatherOptions& options) {
  auto cargo = cargo_for_move();
  auto sources = cargo->load(inputs, Access::Read);
  auto targets = cargo->load(outputs, Access::Write);
  return collective(
      Call::on(OpType::ALLGATHER_COALESCED, inputs),
      [&] { return carrier_->allgather_coalesced(targets, sources, options); },
      cargo,
      flatten(outputs));
}

WorkPtr ProcessGroupNeuron::allgather_into_tensor_coalesced(
    TensorList& outputs, TensorList& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(
      outputs.size() == inputs.size(),
      "all_gather_into_tensor_coalesced got ",
      inputs.size(),
      " inputs and ",
      outputs.size(),
      " outputs.");
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i) {
    works.push_back(gather_whole(outputs[i], inputs[i], options));
  }
  return issued(c10::make_intrusive<BatchWork>(getRank(), std::move(works)));
}

WorkPtr ProcessGroupNeuron::gather(TensorLists& outputs, TensorList& inputs, const c10d::GatherOptions& options) {
  auto cargo = cargo_for_move();
  auto sources = cargo->load(inputs, Access::Read);
  auto targets = cargo->load(outputs, Access::Write);
  return collective(
      Call::on(OpType::GATHER, inputs).rooted(options.rootRank),
      [&] { return carrier_->gather(targets, sources, options); },
      cargo,
      flatten(outputs));
}

WorkPtr ProcessGroupNeuron::scatter(TensorList& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  auto cargo = cargo_for_move();
  auto sources = cargo->load(inputs, Access::Read);
  auto targets = cargo->load(outputs, Access::Write);
  return collective(
      Call::on(OpType::SCATTER, outputs).rooted(options.rootRank),
      [&] { return carrier_->scatter(targets, sources, options); },
      cargo,
      outputs);
}

// Gloo has no reduce-scatter of its own: it too reduces everywhere and keeps a part. Done here, the work is
// asynchronous and has a future.
WorkPtr ProcessGroupNeuron::reduce_and_keep(
    OpType type, const TensorList& parts, const std::vector<Slice>& slices, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(!parts.empty(), "reduce_scatter needs at least one tensor.");
  auto plan = plan_reduction(options.reduceOp, parts[0].scalar_type());
  c10d::AllreduceOptions carried_options;
  carried_options.reduceOp = plan.carried;
  carried_options.timeout = options.timeout;
  carried_options.asyncOp = options.asyncOp;
  auto cargo = std::make_shared<Cargo>(std::move(plan), getSize());
  auto buffer = cargo->load_flat(parts, Access::Read);
  TensorList outputs;
  for (const auto& slice : slices) {
    cargo->deliver(buffer, slice.offset, slice.destination);
    outputs.push_back(slice.destination);
  }
  TensorList carried{carried_view(buffer)};
  return collective(
      Call::on(type, parts).reducing(carried_options.reduceOp),
      [&] { return carrier_->allreduce(carried, carried_options); },
      std::move(cargo),
      std::move(outputs));
}

WorkPtr ProcessGroupNeuron::reduce_scatter(
    TensorList& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) {
  check_single("reduce_scatter", outputs);
  TORCH_CHECK_VALUE(
      inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()),
      "reduce_scatter needs one input per rank (",
      getSize(),
      "), got ",
      inputs.empty() ? 0 : inputs[0].size(),
      ".");
  int64_t offset = 0;
  for (int rank = 0; rank < getRank(); ++rank) {
    offset += inputs[0][rank].numel();
  }
  TORCH_CHECK_VALUE(
      inputs[0][getRank()].numel() == outputs[0].numel(),
      "reduce_scatter on rank ",
      getRank(),
      " has an output of shape ",
      outputs[0].sizes(),
      " for an input of shape ",
      inputs[0][getRank()].sizes(),
      ".");
  return reduce_and_keep(OpType::REDUCE_SCATTER, inputs[0], {{offset, outputs[0]}}, options);
}

WorkPtr ProcessGroupNeuron::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  TensorList outputs{output};
  TensorList inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

WorkPtr ProcessGroupNeuron::reduce_scatter_tensor_coalesced(
    TensorList& outputs, TensorList& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(
      outputs.size() == inputs.size(),
      "reduce_scatter_tensor got ",
      inputs.size(),
      " inputs and ",
      outputs.size(),
      " outputs.");
  std::vector<Slice> slices;
  int64_t offset = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto share = outputs[i].numel();
    TORCH_CHECK_VALUE(
        inputs[i].numel() == share * getSize(),
        "reduce_scatter_tensor over ",
        getSize(),
        " ranks has an input of shape ",
        inputs[i].sizes(),
        " for an output of shape ",
        outputs[i].sizes(),
        ". The input must hold one output per rank.");
    slices.push_back({offset + getRank() * share, outputs[i]});
    offset += inputs[i].numel();
  }
  return reduce_and_keep(
      inputs.size() == 1 ? OpType::_REDUCE_SCATTER_BASE : OpType::REDUCE_SCATTER_TENSOR_COALESCED,
      inputs,
      slices,
      options);
}

WorkPtr ProcessGroupNeuron::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits,
    const c10d::AllToAllOptions& options) {
  c10d::checkSplitSizes(input_splits, input, getSize());
  c10d::checkSplitSizes(output_splits, output, getSize());
  auto given = elements_by_rank(input, input_splits, getSize());
  auto taken = elements_by_rank(output, output_splits, getSize());
  TORCH_CHECK_VALUE(
      given[getRank()] == taken[getRank()],
      "all_to_all_single on rank ",
      getRank(),
      " gives itself ",
      given[getRank()],
      " elements and takes ",
      taken[getRank()],
      ".");
  auto cargo = cargo_for_move();
  auto source = cargo->load(input, Access::Read);
  auto target = cargo->load(output, Access::Write);
  return collective(
      {OpType::ALLTOALL_BASE, -1, input.scalar_type(), std::move(given), std::move(taken)},
      [&] { return carrier_->alltoall_base(target, source, output_splits, input_splits, options); },
      cargo,
      {output});
}

// Through two flat buffers, because Gloo's own form for lists takes tensors of one size only.
WorkPtr ProcessGroupNeuron::alltoall(TensorList& outputs, TensorList& inputs, const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(
      outputs.size() == ranks && inputs.size() == ranks,
      "all_to_all over ",
      ranks,
      " ranks got ",
      inputs.size(),
      " inputs and ",
      outputs.size(),
      " outputs.");
  auto cargo = cargo_for_move();
  auto source = carried_view(cargo->load_flat(inputs, Access::Read));
  auto target = carried_view(cargo->load_flat(outputs, Access::Write));
  auto sent = element_counts(inputs);
  auto received = element_counts(outputs);
  TORCH_CHECK_VALUE(
      sent[getRank()] == received[getRank()],
      "all_to_all on rank ",
      getRank(),
      " gives itself ",
      sent[getRank()],
      " elements and takes ",
      received[getRank()],
      ".");
  return collective(
      {OpType::ALLTOALL, -1, inputs[0].scalar_type(), sent, received},
      [&] { return carrier_->alltoall_base(target, source, received, sent, options); },
      cargo,
      outputs);
}

WorkPtr ProcessGroupNeuron::send(TensorList& tensors, int destination, int tag) {
  auto cargo = cargo_for_move();
  auto carried = cargo->load(tensors, Access::Read);
  roll_->enter_send(destination, tag, bytes_of(tensors));
  return point_to_point(
      OpType::SEND, [&] { return carrier_->send(carried, destination, tag); }, cargo, tensors, destination);
}

WorkPtr ProcessGroupNeuron::recv(TensorList& tensors, int source, int tag) {
  auto cargo = cargo_for_move();
  auto carried = cargo->load(tensors, Access::Write);
  roll_->enter_receive(source, tag, bytes_of(tensors));
  return point_to_point(OpType::RECV, [&] { return carrier_->recv(carried, source, tag); }, cargo, tensors, source);
}

WorkPtr ProcessGroupNeuron::recvAnysource(TensorList& tensors, int tag) {
  auto cargo = cargo_for_move();
  auto carried = cargo->load(tensors, Access::Write);
  roll_->enter_receive_from_any();
  return point_to_point(
      OpType::RECVANYSOURCE, [&] { return carrier_->recvAnysource(carried, tag); }, cargo, tensors, kAnyRank);
}

WorkPtr ProcessGroupNeuron::barrier(const c10d::BarrierOptions& options) {
  return collective({OpType::BARRIER}, [&] { return carrier_->barrier(options); }, cargo_for_move(), {});
}

void ProcessGroupNeuron::monitoredBarrier(const c10d::BarrierOptions& options, bool all_ranks) {
  carrier_->monitoredBarrier(options, all_ranks);
}

void ProcessGroupNeuron::setSequenceNumberForGroup() {
  carrier_->setSequenceNumberForGroup();
}

uint64_t ProcessGroupNeuron::getSequenceNumberForGroup() {
  return carrier_->getSequenceNumberForGroup();
}

} // namespace torch_neuronx::distributed
