#include "reduction.h"

#include <torch_neuronx/op_info.h>

namespace torch_neuronx::distributed {
namespace {

using Op = c10d::ReduceOp;

at::ScalarType compute_dtype(at::ScalarType dtype) {
  if (dtype == at::kDouble || dtype == at::kComplexDouble) {
    if (policy().relaxed) {
      return dtype;
    }
    note_float64();
  }
  if (at::isComplexType(dtype)) {
    return at::kComplexFloat;
  }
  if (at::isFloatingType(dtype)) {
    return at::kFloat;
  }
  switch (dtype) {
    case at::kShort:
    case at::kUInt16:
      return at::kInt;
    case at::kUInt32:
      return at::kLong;
    default:
      return dtype;
  }
}

double factor_of(const Op& op) {
  const auto* supplement = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(
      supplement != nullptr,
      "PREMUL_SUM carries no factor. Make the operation with torch.distributed._make_nccl_premul_sum(factor).");
  const auto& factor = supplement->tensor_factor;
  return factor.defined() ? factor.item<double>() : supplement->double_factor;
}

void refuse(const char* op, at::ScalarType dtype, const char* instead) {
  TORCH_CHECK_TYPE(false, "Cannot reduce ", dtype, " with ", op, ". ", instead);
}

} // namespace

Reduction plan_reduction(const Op& op, at::ScalarType dtype) {
  Reduction plan{op, dtype, std::nullopt, false};
  const bool integral = at::isIntegralType(dtype, /*includeBool=*/true);
  switch (op.op_) {
    case Op::AVG:
      if (dtype == at::kBool) {
        refuse("AVG", dtype, "Convert the tensor to a number type first.");
      }
      plan.carried = Op::SUM;
      plan.average = true;
      break;
    case Op::PREMUL_SUM:
      if (integral) {
        refuse("PREMUL_SUM", dtype, "Only floating point and complex tensors can be multiplied by a factor.");
      }
      plan.carried = Op::SUM;
      plan.factor = factor_of(op);
      break;
    case Op::SUM:
      if (dtype == at::kBool) {
        plan.carried = Op::BOR; // a sum of flags is true where any flag is, and must stay a valid bool
      }
      break;
    case Op::PRODUCT:
    case Op::MIN:
    case Op::MAX:
      if (at::isComplexType(dtype)) {
        refuse("PRODUCT, MIN or MAX", dtype, "Complex tensors can be summed, averaged and scaled.");
      }
      if (dtype == at::kUInt64 && op.op_ != Op::PRODUCT) {
        refuse("MIN or MAX", dtype, "Convert the tensor to int64 first.");
      }
      break;
    case Op::BAND:
    case Op::BOR:
    case Op::BXOR:
      if (!integral) {
        refuse("a bitwise operation", dtype, "Use an integer or bool tensor.");
      }
      break;
    default:
      TORCH_CHECK_VALUE(
          false, "Unknown reduction ", static_cast<int>(op.op_), ". Use one of torch.distributed.ReduceOp.");
  }
  plan.compute = compute_dtype(dtype);
  return plan;
}

void Reduction::before(const at::Tensor& values) const {
  if (factor) {
    values.mul_(*factor);
  }
}

void Reduction::after(const at::Tensor& values, int ranks) const {
  if (average) {
    if (at::isIntegralType(values.scalar_type(), /*includeBool=*/false)) {
      values.div_(ranks, "trunc");
    } else {
      values.div_(ranks);
    }
  }
}

} // namespace torch_neuronx::distributed
