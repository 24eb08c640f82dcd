// What every backend must bring itself: memory for tensors, views, copies, storages.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include "alias.h"
#include "boxed.h"
#include "caching_allocator.h"
#include "error.h"
#include "kernel_scope.h"
#include "storage.h"

namespace torch_neuronx {

namespace {

constexpr c10::DispatchKeySet kKey(c10::DispatchKey::PrivateUse1);

// ---- memory ---------------------------------------------------------------------------------------------------------

void check_factory(std::optional<c10::Layout> layout, std::optional<bool> pin_memory, c10::ScalarType dtype) {
  TORCH_CHECK(
      !pin_memory.value_or(false),
      "Only CPU memory can be pinned; a tensor on device neuron is device memory. Drop pin_memory=True.");
  TORCH_CHECK(
      layout.value_or(c10::kStrided) == c10::kStrided,
      "Device neuron has strided tensors only, not ",
      *layout,
      ". Use .to_dense() first.");
  if (c10::isQIntType(dtype)) {
    raise_error(
        ErrorKind::kUnsupportedDtype,
        "Device neuron has no quantized dtype " + std::string(c10::toString(dtype)) +
            ". Keep the tensor on the CPU, or store it as int8 with its own scale.");
  }
  if (dtype == c10::ScalarType::Double && !policy().relaxed) {
    note_float64();
  }
}

// The same bytes on every run, as PyTorch's deterministic mode asks.
const at::Tensor& fill_if_deterministic(const at::Tensor& tensor) {
  auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())) {
    const KernelScope scope(tensor.device().index());
    auto alias = borrow_alias(tensor);
    at::native::fill_empty_deterministic_(alias);
  }
  return tensor;
}

// Makes `index` the current core for one allocation: at::detail's factories allocate on the current one.
class OnDevice {
 public:
  explicit OnDevice(std::optional<c10::Device> device) : previous_(current_device()) {
    if (device.has_value() && device->has_index()) {
      set_current_device(device->index());
    }
  }
  ~OnDevice() {
    set_current_device_unchecked(previous_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  c10::DeviceIndex previous_;
};

void ensure_usable() {
  if (C10_UNLIKELY(in_bad_fork())) {
    raise_bad_fork();
  }
  ensure_initialized();
}

at::Tensor empty(
    at::IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::optional<c10::MemoryFormat> memory_format) {
  ensure_usable();
  const auto type = c10::dtype_or_default(dtype);
  check_factory(layout, pin_memory, type);
  const OnDevice on_device(device);
  return fill_if_deterministic(at::detail::empty_generic(size, &CachingAllocator::get(), kKey, type, memory_format));
}

at::Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  ensure_usable();
  const auto type = c10::dtype_or_default(dtype);
  check_factory(layout, pin_memory, type);
  const OnDevice on_device(device);
  return fill_if_deterministic(at::detail::empty_strided_generic(size, stride, &CachingAllocator::get(), kKey, type));
}

// A zero of any shape without memory: forward-mode autograd's "no tangent".
class NoMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    (void)bytes;
    return {nullptr, nullptr, &nothing, c10::Device(kNeuron, current_device())};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &nothing;
  }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    (void)destination;
    (void)source;
    (void)bytes;
  }

 private:
  static void nothing(void* context) {
    (void)context;
  }
};

at::Tensor efficientzerotensor(
    at::IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  ensure_usable();
  const auto type = c10::dtype_or_default(dtype);
  check_factory(layout, pin_memory, type);
  const OnDevice on_device(device);
  static NoMemory no_memory;
  return at::detail::empty_generic(size, &no_memory, kKey.add(c10::DispatchKey::ZeroTensor), type, std::nullopt);
}

// ---- copies ---------------------------------------------------------------------------------------------------------

at::Tensor host_side(const at::Tensor& tensor) {
  return is_neuron(tensor) ? borrow_alias_with_bits(tensor) : tensor;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  (void)non_blocking; // the emulator has copied when the call returns; that is stronger than asked
  ensure_usable();
  const auto device = is_neuron(destination) ? destination.device().index() : source.device().index();
  const KernelScope scope(device);
  auto from = host_side(source);
  auto to = host_side(destination);
  const bool arrives_as_double =
      is_neuron(destination) && destination.scalar_type() == c10::ScalarType::Double && !policy().relaxed;
  const bool holds_float32 = is_neuron(source) && source.scalar_type() == c10::ScalarType::Double;
  if (arrives_as_double && !holds_float32 && !c10::isComplexType(source.scalar_type())) {
    note_float64();
    from = from.to(c10::ScalarType::Float);
  }
  if ((mode_bits.load(std::memory_order_relaxed) & kModeStrictInt64) && is_neuron(destination) &&
      destination.scalar_type() == at::kLong) {
    check_int32_range(from.to(at::kLong), "aten::copy_");
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  to.copy_(from);
  if (mode_bits.load(std::memory_order_relaxed) & kModeTrackOps) {
    static const OpInfo& info = op_info(std::string("aten::copy_"));
    note_execution(info);
  }
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& destination) {
  if (destination.sizes() != source.sizes()) {
    destination.resize_(source.sizes());
  }
  return copy_from(source, destination, false);
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  ensure_usable();
  const KernelScope scope(tensor.device().index());
  return host_side(tensor).item();
}

// ---- views and storages ---------------------------------------------------------------------------------------------

at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef size) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor as_strided(
    const at::Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  const auto start = offset.has_value() ? std::optional<int64_t>(offset->expect_int()) : std::nullopt;
  return at::native::as_strided_tensorimpl(
      tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), start);
}

at::Tensor reshape_alias(const at::Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor unfold(const at::Tensor& tensor, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(tensor, dimension, size, step);
}

const at::Tensor& resize_(
    const at::Tensor& tensor, c10::SymIntArrayRef symbolic_size, std::optional<c10::MemoryFormat> memory_format) {
  const auto size = C10_AS_INTARRAYREF_SLOW(symbolic_size);
  auto* impl = tensor.unsafeGetTensorImpl();
  const size_t before = impl->unsafe_storage().nbytes();
  if (impl->sizes() != size) {
    // Memory first: a request that fails leaves the tensor as it was.
    const size_t needed = at::detail::computeStorageNbytesContiguous(
        size, impl->dtype().itemsize(), static_cast<size_t>(impl->storage_offset()));
    if (c10::multiply_integers(size) > 0 && needed > before) {
      resize_storage(*impl->unsafe_storage().unsafeGetStorageImpl(), needed);
    }
    impl->set_sizes_contiguous(size);
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(
        *memory_format != c10::MemoryFormat::Preserve, "resize_ takes a definite memory format, not preserve_format.");
    impl->empty_tensor_restride(*memory_format);
  }
  auto& context = at::globalContext();
  if (C10_UNLIKELY(
          context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory() &&
          impl->unsafe_storage().nbytes() > before)) {
    const KernelScope scope(tensor.device().index());
    at::native::fill_resize_deterministic_(borrow_alias(tensor), static_cast<int64_t>(before));
  }
  return tensor;
}

void check_storage_device(const at::Tensor& tensor, c10::Device device) {
  TORCH_CHECK(
      device == tensor.device(),
      "Attempted to set the storage of a tensor on device \"",
      tensor.device(),
      "\" to a storage on different device \"",
      device,
      "\". This is no longer allowed; the devices must match.");
}

at::Tensor& set_storage_offset(
    at::Tensor& tensor, c10::Storage source, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  check_storage_device(tensor, source.device());
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  const auto strides = C10_AS_INTARRAYREF_SLOW(stride);
  at::native::checkSetStorage(tensor, std::move(source), offset.expect_int(), sizes, strides);
  auto* impl = tensor.unsafeGetTensorImpl();
  const auto start = offset.expect_int();
  const size_t itemsize = impl->dtype().itemsize();
  const bool contiguous = strides.data() == nullptr;
  const size_t needed = contiguous
      ? at::detail::computeStorageNbytesContiguous(sizes, itemsize, static_cast<size_t>(start))
      : at::detail::computeStorageNbytes(sizes, strides, itemsize, static_cast<size_t>(start));
  if (c10::multiply_integers(sizes) > 0 && needed > impl->unsafe_storage().nbytes()) {
    resize_storage(*impl->unsafe_storage().unsafeGetStorageImpl(), needed);
  }
  impl->set_storage_offset(start);
  if (contiguous) {
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides, start);
  }
  return tensor;
}

at::Tensor& set_storage(at::Tensor& tensor, c10::Storage source) {
  const auto length = static_cast<int64_t>(source.nbytes() / tensor.dtype().itemsize());
  return set_storage_offset(tensor, std::move(source), 0, {length}, {});
}

at::Tensor& set_tensor(at::Tensor& tensor, const at::Tensor& source) {
  if (tensor.is_same(source)) {
    return tensor;
  }
  return set_storage_offset(
      tensor, source.storage(), source.storage_offset(), source.sym_sizes(), source.sym_strides());
}

at::Tensor& set_empty(at::Tensor& tensor) {
  c10::Storage storage(
      c10::Storage::use_byte_size_t(),
      0,
      CachingAllocator::get().allocate_on(0, tensor.device().index()),
      &CachingAllocator::get(),
      true);
  return set_storage_offset(tensor, std::move(storage), 0, {0}, {});
}

// Lets Module.to() move a parameter's bytes under the same Parameter object, so that ties and optimizers keep hold of it.
bool has_compatible_shallow_copy_type(const at::Tensor& tensor, const at::Tensor& from) {
  auto plain = [](const at::Tensor& one) {
    return one.layout() == c10::kStrided && (one.is_cpu() || is_neuron(one)) && !one.is_quantized() && !one.is_nested();
  };
  return (plain(tensor) && plain(from)) ||
      tensor.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  CachingAllocator::get().recordStream(tensor.storage().data_ptr(), stream);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_efficientzerotensor", TORCH_FN(efficientzerotensor));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  library.impl("view", TORCH_FN(view));
  library.impl("as_strided", TORCH_FN(as_strided));
  library.impl("_reshape_alias", TORCH_FN(reshape_alias));
  library.impl("unfold", TORCH_FN(unfold));
  library.impl("resize_", TORCH_FN(resize_));
  library.impl("set_", TORCH_FN(set_empty));
  library.impl("set_.source_Storage", TORCH_FN(set_storage));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  library.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  library.impl("record_stream", TORCH_FN(record_stream));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

// copy_ sends tensors with these bits to _copy_from, which reads the bits itself: resolving them first would call copy_ again.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

} // namespace torch_neuronx
