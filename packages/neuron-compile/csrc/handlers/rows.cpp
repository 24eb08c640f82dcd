// What is said of whole rows: softmax, mean and deviation, sums and extremes.
#include <ATen/Parallel.h>
#include <c10/util/irange.h>

#include <cmath>
#include <limits>

#include "handler.h"

namespace torch_neuronx::compile {
namespace {

constexpr int64_t kLanes = 32;

// Partial sums side by side are what the compiler may turn into vectors; one sum from left to right it may not.
template <typename Value>
__attribute__((optimize("O3"))) float sum_of(const Value* row, int64_t count) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      lanes[j] += static_cast<float>(row[i + j]);
    }
  }
  float total = 0;
  for (; i < count; ++i) {
    total += static_cast<float>(row[i]);
  }
  for (const float lane : lanes) {
    total += lane;
  }
  return total;
}

template <typename Value>
__attribute__((optimize("O3"))) float squares_of(const Value* row, int64_t count, float mean) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const float distance = static_cast<float>(row[i + j]) - mean;
      lanes[j] += distance * distance;
    }
  }
  float total = 0;
  for (; i < count; ++i) {
    const float distance = static_cast<float>(row[i]) - mean;
    total += distance * distance;
  }
  for (const float lane : lanes) {
    total += lane;
  }
  return total;
}

int64_t grain(int64_t columns) {
  return std::max<int64_t>(1, at::internal::GRAIN_SIZE / std::max<int64_t>(1, columns));
}

template <typename Value>
void row_moments(const at::Tensor& input, int64_t rows, float* means, float* squares, bool centred) {
  const int64_t columns = input.numel() / std::max<int64_t>(1, rows);
  const auto* data = input.const_data_ptr<Value>();
  at::parallel_for(0, rows, grain(columns), [&](int64_t begin, int64_t end) {
    for (const auto row : c10::irange(begin, end)) {
      const Value* values = data + row * columns;
      const float mean = centred ? sum_of(values, columns) / static_cast<float>(columns) : 0;
      if (centred) {
        means[row] = mean;
      }
      squares[row] = squares_of(values, columns, mean);
    }
  });
}

// Rows without a finite number: zeros, where the definition gives 0 / 0.
template <typename Value>
void clear_masked_rows(const at::Tensor& input, at::Tensor& out) {
  const int64_t columns = out.size(-1);
  const int64_t rows = out.numel() / std::max<int64_t>(1, columns);
  const auto* from = input.const_data_ptr<Value>();
  auto* to = out.mutable_data_ptr<Value>();
  for (const auto row : c10::irange(rows)) {
    if (!std::isnan(static_cast<float>(to[row * columns]))) {
      continue;
    }
    const auto* values = from + row * columns;
    const bool masked = std::all_of(values, values + columns, [](Value value) {
      return static_cast<float>(value) == -std::numeric_limits<float>::infinity();
    });
    if (masked) {
      std::fill(to + row * columns, to + (row + 1) * columns, Value(0));
    }
  }
}

} // namespace

// Softmax of the operand's last axis; with `masked`, rows of minus infinity give zeros.
ffi::Error softmax(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  return run_kernel([&] {
    const auto input = operand(operands, 0);
    auto out = result(results, 0);
    if (required<bool>(attributes, "logarithm")) {
      at::_log_softmax_out(out, input, -1, false);
      return;
    }
    at::_softmax_out(out, input, -1, false);
    if (required<bool>(attributes, "masked")) {
      AT_DISPATCH_FLOATING_TYPES_AND2(
          at::kBFloat16, at::kHalf, out.scalar_type(), "softmax", [&] { clear_masked_rows<scalar_t>(input, out); });
    }
  });
}

// Of each row: the mean, and the sum of the squared distances from it; with one result, the sum of the squares. A row is
// what one element of a result stands for. Results are float32.
ffi::Error moments(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary) {
  return run_kernel([&] {
    const auto input = operand(operands, 0);
    const bool centred = results.size() == 2;
    auto squares = result(results, results.size() - 1);
    auto means = result(results, 0);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, input.scalar_type(), "moments", [&] {
      row_moments<scalar_t>(
          input, squares.numel(), means.mutable_data_ptr<float>(), squares.mutable_data_ptr<float>(), centred);
    });
  });
}

// The sum, product or extreme over the axes `axes` of the view.
ffi::Error reduce(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  return run_kernel([&] {
    const auto input = viewed(operands, 0, attributes);
    const auto axes = list(required<Integers>(attributes, "axes"));
    const auto kind = required<std::string_view>(attributes, "kind");
    auto out = result(results, 0);
    if (kind == "add") {
      at::sum_out(out, input, axes, false);
    } else if (kind == "maximum") {
      at::amax_out(out, input, axes, false);
    } else {
      TORCH_CHECK(kind == "minimum", "The emulator has no reduction of the kind ", kind, ".");
      at::amin_out(out, input, axes, false);
    }
  });
}

} // namespace torch_neuronx::compile
