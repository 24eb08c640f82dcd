#include "handler.h"

namespace torch_neuronx::compile {
namespace {

bool all_equal(at::IntArrayRef values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [value](int64_t other) { return other == value; });
}

bool channels_last(const at::Tensor& tensor) {
  return !tensor.is_contiguous() && tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

// The forward product, for any padding: what torch cannot say is done to the input first.
at::Tensor forward(
    at::Tensor input,
    const at::Tensor& weight,
    at::IntArrayRef stride,
    at::IntArrayRef low,
    at::IntArrayRef high,
    at::IntArrayRef dilation,
    int64_t groups) {
  std::vector<int64_t> padding(low.begin(), low.end());
  if (low != high || std::any_of(low.begin(), low.end(), [](int64_t pad) { return pad < 0; })) {
    std::vector<int64_t> uneven;
    for (size_t i = low.size(); i-- > 0;) {
      uneven.push_back(low[i]);
      uneven.push_back(high[i]);
    }
    input = at::constant_pad_nd(input, uneven);
    padding.assign(low.size(), 0);
  }
  return at::convolution(
      input, weight, {}, stride, padding, dilation, false, std::vector<int64_t>(low.size(), 0), groups);
}

// A stretched input is the product that torch calls transposed, with the kernel turned round.
at::Tensor transposed(
    const at::Tensor& input,
    const at::Tensor& weight,
    at::IntArrayRef out,
    at::IntArrayRef stretch,
    at::IntArrayRef low,
    at::IntArrayRef dilation,
    bool reversed) {
  std::vector<int64_t> axes;
  std::vector<int64_t> padding;
  std::vector<int64_t> extra;
  for (size_t i = 0; i < low.size(); ++i) {
    const auto span = dilation[i] * (weight.size(2 + i) - 1);
    axes.push_back(2 + i);
    padding.push_back(span - low[i]);
    extra.push_back(out[2 + i] - ((input.size(2 + i) - 1) * stretch[i] - 2 * padding.back() + span + 1));
  }
  auto kernel = weight.transpose(0, 1);
  if (!reversed) {
    kernel = kernel.flip(axes);
  }
  return at::convolution(input, kernel, {}, stretch, padding, dilation, true, extra, 1);
}

} // namespace

// A convolution whose views are batch, features, space (input and result), and output features, input features, space
// (kernel); `form` is chosen by the compiler.
ffi::Error convolve(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  return run_kernel([&] {
    auto input = viewed(operands, 0, attributes);
    const auto weight = viewed(operands, 1, attributes);
    const auto stride = list(required<Integers>(attributes, "stride"));
    const auto low = list(required<Integers>(attributes, "low"));
    const auto high = list(required<Integers>(attributes, "high"));
    const auto stretch = list(required<Integers>(attributes, "stretch"));
    const auto dilation = list(required<Integers>(attributes, "dilation"));
    const auto groups = required<int64_t>(attributes, "groups");
    const auto form = required<std::string_view>(attributes, "form");
    auto out = seen(result(results, 0), "result", attributes);
    if (channels_last(out)) { // the product has the input's order
      input = input.contiguous(at::MemoryFormat::ChannelsLast);
    }
    if (form == "forward") {
      out.copy_(forward(input, weight, stride, low, high, dilation, groups));
    } else if (form == "transposed" || form == "transposed reversed") {
      out.copy_(transposed(input, weight, out.sizes(), stretch, low, dilation, form != "transposed"));
    } else {
      // The gradient of a kernel: batch and features have changed places, and the window is the output's gradient.
      const auto image = input.transpose(0, 1);
      const auto grad = weight.transpose(0, 1);
      const auto made = std::get<1>(at::convolution_backward(
          grad,
          image,
          at::empty({grad.size(1), image.size(1), out.size(2), out.size(3)}, image.options()),
          at::OptionalIntArrayRef(),
          dilation,
          low,
          stride,
          false,
          std::vector<int64_t>(low.size(), 0),
          1,
          {false, true, false}));
      out.copy_(made.transpose(0, 1));
    }
    TORCH_CHECK(all_equal(stretch, 1) || form != "forward", "A forward convolution has no stretched input.");
  });
}

} // namespace torch_neuronx::compile
