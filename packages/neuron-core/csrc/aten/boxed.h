// The one path of every eager call that is not plain: any operator, any argument, every rule of the target.
#pragma once

#include <ATen/core/boxing/BoxedKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "op_info.h"

namespace torch_neuronx {

void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
const c10::BoxedKernel& boxed_kernel();

// Finds the record and the schema of "add.Tensor" for a kernel.
void prepare_kernel(const char* name, OpInfo*& info, const c10::OperatorHandle*& handle);

// `tensor` (CPU, float64) rounded to float32's values in place.
void round_to_float32(at::Tensor& tensor);
// Raises IntegerRangeError when an int64 value would not survive the chip's int32.
void check_int32_range(const at::Tensor& alias, const std::string& op_name);

} // namespace torch_neuronx
