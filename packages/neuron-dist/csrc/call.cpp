#include "call.h"

#include <algorithm>
#include <cctype>

namespace torch_neuronx::distributed {

std::string name_of(c10d::OpType type) {
  switch (type) {
    case c10d::OpType::ALLREDUCE:
      return "all_reduce";
    case c10d::OpType::ALLREDUCE_COALESCED:
      return "all_reduce_coalesced";
    case c10d::OpType::ALLGATHER:
      return "all_gather";
    case c10d::OpType::_ALLGATHER_BASE:
      return "all_gather_into_tensor";
    case c10d::OpType::ALLGATHER_COALESCED:
      return "all_gather_coalesced";
    case c10d::OpType::REDUCE_SCATTER:
      return "reduce_scatter";
    case c10d::OpType::_REDUCE_SCATTER_BASE:
      return "reduce_scatter_tensor";
    case c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED:
      return "reduce_scatter_tensor_coalesced";
    case c10d::OpType::ALLTOALL:
      return "all_to_all";
    case c10d::OpType::ALLTOALL_BASE:
      return "all_to_all_single";
    default:
      break;
  }
  auto name = c10d::opTypeToString(type);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::string name_of(c10d::ReduceOp::RedOpType reduction) {
  using Op = c10d::ReduceOp;
  switch (reduction) {
    case Op::SUM:
      return "SUM";
    case Op::PRODUCT:
      return "PRODUCT";
    case Op::MIN:
      return "MIN";
    case Op::MAX:
      return "MAX";
    case Op::BAND:
      return "BAND";
    case Op::BOR:
      return "BOR";
    case Op::BXOR:
      return "BXOR";
    default: // no transport is asked for another
      return std::to_string(static_cast<int>(reduction));
  }
}

Call Call::on(c10d::OpType type, const at::Tensor& tensor) {
  return {type, tensor.numel(), tensor.scalar_type()};
}

Call Call::on(c10d::OpType type, const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) {
    return {type};
  }
  auto call = on(type, tensors[0]);
  for (size_t i = 1; i < tensors.size(); ++i) {
    call.count += tensors[i].numel();
  }
  return call;
}

Call Call::rooted(int64_t rank) && {
  root = rank;
  return std::move(*this);
}

Call Call::reducing(const c10d::ReduceOp& carried) && {
  using Op = c10d::ReduceOp;
  auto operation = carried.op_;
  if (dtype == at::kBool) {
    if (operation == Op::PRODUCT || operation == Op::MIN) {
      operation = Op::BAND;
    } else if (operation == Op::SUM || operation == Op::MAX) {
      operation = Op::BOR;
    }
  }
  reduction = static_cast<int64_t>(operation);
  return std::move(*this);
}

std::string Call::text() const {
  auto text = name_of(type);
  return count < 0 ? text : text + " of " + std::to_string(count) + " " + c10::toString(dtype);
}

} // namespace torch_neuronx::distributed
