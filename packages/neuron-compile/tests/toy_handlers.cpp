// Handlers of a toy plugin; the tests compile them and take their addresses.
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using Floats = ffi::Buffer<ffi::F32>;

static ffi::Error scale(Floats x, ffi::ResultBuffer<ffi::F32> y, double factor) {
  for (size_t i = 0; i < x.element_count(); ++i) {
    y->typed_data()[i] = x.typed_data()[i] * static_cast<float>(factor);
  }
  return ffi::Error::Success();
}

static std::mutex mutex;
static std::vector<int64_t> marks;
static std::atomic<int> inside{0};

static ffi::Error mark(ffi::Token, Floats x, ffi::Result<ffi::Token>, ffi::ResultBuffer<ffi::F32> y, int64_t number) {
  const bool alone = ++inside == 1;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  {
    const std::lock_guard<std::mutex> guard(mutex);
    marks.push_back(alone ? number : -1);
  }
  std::memcpy(y->untyped_data(), x.untyped_data(), x.size_bytes());
  --inside;
  return ffi::Error::Success();
}

static ffi::Error increase(Floats x, ffi::ResultBuffer<ffi::F32> y) {
  if (x.untyped_data() != y->untyped_data()) {
    return ffi::Error::Internal("not in place");
  }
  for (size_t i = 0; i < x.element_count(); ++i) {
    y->typed_data()[i] += 1;
  }
  return ffi::Error::Success();
}

static ffi::Error all_reduce(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  const auto groups = *attributes.get<ffi::Span<const int64_t>>("replica_groups");
  const auto size = *attributes.get<int64_t>("group_size");
  if (*attributes.get<std::string_view>("reduction") != "add" || groups.size() != 4 || groups[1] != 2 ||
      *attributes.get<int64_t>("channel_id") != 1 || !*attributes.get<bool>("use_global_device_ids")) {
    return ffi::Error::InvalidArgument("unexpected attributes");
  }
  for (size_t position = 1; position < operands.size(); ++position) { // the first of each is the token
    const auto x = *operands.get<Floats>(position);
    auto y = *results.get<Floats>(position);
    for (size_t i = 0; i < x.element_count(); ++i) {
      y->typed_data()[i] = x.typed_data()[i] * static_cast<float>(size);
    }
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(toy_scale, scale, ffi::Ffi::Bind().Arg<Floats>().Ret<Floats>().Attr<double>("factor"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    toy_mark,
    mark,
    ffi::Ffi::Bind().Arg<ffi::Token>().Arg<Floats>().Ret<ffi::Token>().Ret<Floats>().Attr<int64_t>("number"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(toy_increase, increase, ffi::Ffi::Bind().Arg<Floats>().Ret<Floats>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(toy_all_reduce, all_reduce, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());

extern "C" int64_t toy_marks(int64_t* out, int64_t limit) {
  const std::lock_guard<std::mutex> guard(mutex);
  int64_t count = 0;
  for (; count < static_cast<int64_t>(marks.size()) && count < limit; ++count) {
    out[count] = marks[count];
  }
  marks.clear();
  return count;
}
