#pragma once

#include <c10/util/FunctionRef.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cargo.h"
#include "work.h"

namespace torch_neuronx::distributed {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

/// Makes the process group that carries the bytes (Gloo). Its headers are not in the torch wheel, so Python makes it.
using CarrierFactory =
    std::function<BackendPtr(c10::intrusive_ptr<c10d::Store>, int rank, int size, std::chrono::milliseconds timeout)>;

/// Called once, when the extension is imported.
void set_carrier_factory(CarrierFactory factory);

/// The c10d backend `neuron`: collectives over device memory, carried by another process group as CPU aliases.
class ProcessGroupNeuron final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
        : c10d::Backend::Options("neuron", timeout) {}

    /// Prefix of everything that the group keeps in its store; empty for none.
    std::string session;
  };

  ProcessGroupNeuron(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~ProcessGroupNeuron() override;

  const std::string getBackendName() const override {
    return "neuron";
  }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
    return options_;
  }
  bool supportsSplitting() const override {
    return true;
  }
  bool supportsCoalescing() const override {
    return true;
  }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() override;
  void shutdown() override;

  BackendPtr split(
      const c10::intrusive_ptr<c10d::Store>& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  BackendPtr merge(
      const c10::intrusive_ptr<c10d::Store>& store,
      const c10::intrusive_ptr<c10d::Backend::Options>& options,
      const int& rank,
      const int& size) override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(TensorList& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(TensorList& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(TensorList& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(TensorList& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, TensorList& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, TensorList& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(
      TensorList& outputs, TensorList& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, TensorList& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(TensorList& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(TensorList& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(
      TensorList& outputs, TensorList& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_splits,
      std::vector<int64_t>& input_splits,
      const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(TensorList& outputs, TensorList& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(TensorList& tensors, int destination, int tag) override;
  WorkPtr recv(TensorList& tensors, int source, int tag) override;
  WorkPtr recvAnysource(TensorList& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool all_ranks) override;

  void setSequenceNumberForGroup() override;
  uint64_t getSequenceNumberForGroup() override;

  /// Runs a collective of host memory to its end. `start` issues it on the carrier. What it fails with is what the
  /// collective on device memory fails with.
  void run(const Call& call, const std::function<WorkPtr(c10d::Backend& carrier)>& start);
  /// Ranks of the members in the world, in the order of their ranks in this group.
  std::vector<int64_t> world_ranks() const;

 private:
  struct Slice {
    int64_t offset;
    at::Tensor destination;
  };

  /// Raises where a rank is about to run another call than the others, if the program asked for such checks.
  void compare_calls(const Call& call);
  /// What a group that is made of this one, by split() or merge(), is asked to be.
  c10::intrusive_ptr<Options> options_of_part(const c10d::Backend::Options& asked) const;
  using Start = c10::function_ref<WorkPtr()>;

  /// Counts `call` and then has the carrier start it.
  WorkPtr begin(Call call, Start start, std::shared_ptr<Cargo> cargo, TensorList outputs);
  WorkPtr collective(Call call, Start start, std::shared_ptr<Cargo> cargo, TensorList outputs);
  WorkPtr point_to_point(c10d::OpType type, Start start, std::shared_ptr<Cargo> cargo, TensorList outputs, int peer);
  WorkPtr issued(WorkPtr work);
  WorkPtr gather_whole(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options);
  /// Reduces `parts` over all ranks, then keeps of the sum what each slice says.
  WorkPtr reduce_and_keep(
      c10d::OpType type,
      const TensorList& parts,
      const std::vector<Slice>& slices,
      const c10d::ReduceScatterOptions& options);

  BackendPtr carrier_;
  c10::intrusive_ptr<Options> options_;
  std::shared_ptr<Roll> roll_;
  std::shared_ptr<Waiters> waiters_ = std::make_shared<Waiters>();
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

} // namespace torch_neuronx::distributed
