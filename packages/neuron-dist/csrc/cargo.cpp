#include "cargo.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch_neuronx/alias.h>
#include <torch_neuronx/kernel_scope.h>
#include <torch_neuronx/segment.h>

namespace torch_neuronx::distributed {
namespace {

bool carrier_knows(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kChar:
    case at::kByte:
    case at::kBool:
    case at::kInt:
    case at::kLong:
      return true;
    default:
      return false;
  }
}

bool is_plain(const at::Tensor& alias) {
  return alias.is_contiguous() && !alias.is_conj() && !alias.is_neg();
}

bool reads(Access access) {
  return access != Access::Write;
}

bool writes(Access access) {
  return access == Access::Write || access == Access::ReadWrite;
}

} // namespace

at::Tensor carried_view(at::Tensor values) {
  if (values.is_complex()) {
    values = at::view_as_real(values);
  }
  const auto dtype = values.scalar_type();
  if (carrier_knows(dtype)) {
    return values;
  }
  switch (values.element_size()) {
    case 1:
      return values.view(at::kByte);
    case 2:
      return values.view(at::kHalf);
    case 4:
      return values.view(at::kInt);
    default:
      return values.view(at::kLong);
  }
}

at::Tensor flat(at::Tensor values) {
  if (values.dim() == 1) {
    return values;
  }
  const at::AutoDispatchBelowADInplaceOrView raw;
  return values.view({-1});
}

OpenMemory::OpenMemory() : opened_(protection_enabled()) {
  if (opened_) {
    open_device_memory();
  }
}

OpenMemory::~OpenMemory() {
  if (opened_) {
    close_device_memory();
  }
}

void Cargo::admit(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      tensor.device().type() == c10::DeviceType::PrivateUse1,
      "The process group of backend neuron got a tensor on device ",
      tensor.device(),
      ". Move it with .to('neuron'), or create the group with backend 'cpu:gloo,neuron:neuron'.");
  TORCH_CHECK_VALUE(
      tensor.layout() == c10::kStrided,
      "The process group of backend neuron got a tensor of layout ",
      tensor.layout(),
      ". Use .to_dense() first.");
  if (!device_) {
    device_ = tensor.device();
    dtype_ = tensor.scalar_type();
    open_.emplace();
  }
  TORCH_CHECK_TYPE(
      tensor.scalar_type() == *dtype_,
      "The tensors of one collective have dtypes ",
      *dtype_,
      " and ",
      tensor.scalar_type(),
      ". Use one dtype.");
  TORCH_CHECK_VALUE(
      tensor.device() == *device_,
      "The tensors of one collective are on ",
      *device_,
      " and ",
      tensor.device(),
      ". Use one device per rank.");
  held_.push_back(tensor);
}

at::Tensor Cargo::load(const at::Tensor& tensor, Access access) {
  admit(tensor);
  at::AutoDispatchBelowADInplaceOrView raw;
  auto alias = cpu_alias(tensor);
  const bool converts = plan_ && plan_->copies(alias.scalar_type());
  const bool shared = is_plain(alias) && !converts && access != Access::Spoil;
  auto buffer = alias;
  if (!shared) {
    KernelScope scope(device_->index());
    buffer = at::empty(alias.sizes(), alias.options().dtype(buffer_dtype(alias.scalar_type())));
    if (reads(access)) {
      buffer.copy_(alias);
      if (plan_) {
        plan_->before(buffer);
      }
    }
  }
  const bool averages = plan_ && plan_->average;
  if (writes(access) && (!shared || averages)) {
    deliveries_.push_back({buffer, shared ? at::Tensor() : alias});
  }
  return carried_view(buffer);
}

TensorList Cargo::load(const TensorList& tensors, Access access) {
  TensorList loaded;
  loaded.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    loaded.push_back(load(tensor, access));
  }
  return loaded;
}

TensorLists Cargo::load(const TensorLists& lists, Access access) {
  TensorLists loaded;
  loaded.reserve(lists.size());
  for (const auto& list : lists) {
    loaded.push_back(load(list, access));
  }
  return loaded;
}

at::Tensor Cargo::load_flat(const TensorList& parts, Access access) {
  int64_t count = 0;
  for (const auto& part : parts) {
    admit(part);
    count += part.numel();
  }
  at::AutoDispatchBelowADInplaceOrView raw;
  KernelScope scope(device_->index());
  auto buffer = at::empty({count}, at::TensorOptions().dtype(buffer_dtype(*dtype_)));
  int64_t offset = 0;
  for (const auto& part : parts) {
    if (reads(access)) {
      buffer.narrow(0, offset, part.numel()).view(part.sizes()).copy_(cpu_alias(part));
    }
    if (writes(access)) {
      deliver(buffer, offset, part);
    }
    offset += part.numel();
  }
  if (plan_ && reads(access)) {
    plan_->before(buffer);
  }
  return buffer;
}

void Cargo::deliver(const at::Tensor& buffer, int64_t offset, const at::Tensor& destination) {
  admit(destination);
  at::AutoDispatchBelowADInplaceOrView raw;
  auto from = buffer.narrow(0, offset, destination.numel()).view(destination.sizes());
  deliveries_.push_back({std::move(from), cpu_alias(destination)});
}

void Cargo::unload() {
  if (!deliveries_.empty()) {
    at::AutoDispatchBelowADInplaceOrView raw;
    KernelScope scope(device_->index());
    for (const auto& delivery : deliveries_) {
      if (plan_) {
        plan_->after(delivery.from, ranks_);
      }
      if (delivery.to.defined()) {
        delivery.to.copy_(delivery.from);
      }
    }
    deliveries_.clear();
  }
  open_.reset();
}

} // namespace torch_neuronx::distributed
