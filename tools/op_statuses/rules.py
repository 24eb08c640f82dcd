"""What the lowering results alone cannot say about an operator's status, as named rules with their reasons.

Rules are tried in the order of `RULES`; the first that knows an operator decides. A rule that derives a status from
other operators names them, and `table` follows the names: nothing is native because a rule says so alone, except memory
management, views and the device's own generator, which no compiler lowers.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tools.op_statuses.operators import Operator
from torch_neuronx.op_status import OpStatus


@dataclass(frozen=True)
class Verdict:
    """A status with its reason."""

    status: OpStatus
    reason: str = ""


@dataclass(frozen=True)
class Follows:
    """The status of other operators: native if each of `all_of` is, and one of `any_of` where it is not empty."""

    reason: str
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()


Rule = Callable[[Operator, Mapping[str, Operator]], Verdict | Follows | None]

QUANTIZED = "the target has no quantized tensors; quantize with float arithmetic, or run this on the CPU"
SPARSE = "sparse layouts: the target has none and its release leaves torch.sparse out, so the host computes them"
NESTED = "the target has no nested layout; pad to one dense tensor, or run this on the CPU"
MKLDNN = "the mkldnn layout exists on the CPU only; keep the tensor strided"

_QUANTIZED = re.compile(
    r"quantize_per_\w+|quantized_\w+|empty_quantized|_empty_(affine|per_channel_affine)_quantized|dequantize|int_repr"
    r"|_make_per_(tensor|channel)_quantized_tensor|q_scale|q_zero_point|q_per_channel_\w+|qscheme"
)
_SPARSE = re.compile(
    r"_?to_sparse(_\w+)?|_?sparse_\w+|hspmm|sspaddmm|_spdiags|_spsolve|_?coalesced?_?|_coalesced_?|_indices|_values|indices"
    r"|values|c?crow_indices|c?col_indices|row_indices|_nnz|_dim[IV]|copy_sparse_to_sparse_?|resize_as_sparse_?|_to_dense"
    r"|(_indices|_values|indices|values|crow_indices|ccol_indices|col_indices|row_indices)_copy"
    r"|_validate_compressed_sparse_indices"
)
_SPARSE_QUERIES = {"sparse_dim"}
_NESTED = re.compile(r"_nested_\w+|to_padded_tensor")
_MKLDNN = re.compile(r"_?mkldnn_\w+|to_mkldnn|_to_mkldnn")


def layout(operator: Operator, known: Mapping[str, Operator]) -> Verdict | None:
    """Operators that make, take or read a layout or a quantizer that the target does not have."""
    name = operator.packet
    if name in _SPARSE_QUERIES:
        return None
    if _SPARSE.fullmatch(name):
        return Verdict(OpStatus.FALLBACK, SPARSE)
    for pattern, reason in ((_QUANTIZED, QUANTIZED), (_NESTED, NESTED), (_MKLDNN, MKLDNN)):
        if pattern.fullmatch(name):
            return Verdict(OpStatus.UNSUPPORTED, reason)
    if operator.namespace in {"quantized", "_quantized", "quantization"}:
        return Verdict(OpStatus.UNSUPPORTED, QUANTIZED)
    if operator.namespace in {"mkldnn", "mkldnn_prepacked", "onednn", "mkl"}:
        return Verdict(OpStatus.UNSUPPORTED, MKLDNN)
    if operator.namespace == "sparse":
        return Verdict(OpStatus.UNSUPPORTED, QUANTIZED)  # its operators are quantized linear layers
    return None


COMPLEX = "complex numbers: the target has none, so the host computes them"
_COMPLEX = {
    "complex", "polar", "view_as_complex", "view_as_real", "_conj", "_conj_physical", "conj_physical",
    "_fft_r2c", "_fft_c2r", "_fft_c2c", "linalg_eig", "_linalg_eigvals", "linalg_eigvals",
}  # fmt: skip


def complex_numbers(operator: Operator, known: Mapping[str, Operator]) -> Verdict | None:
    """Operators that only make sense with complex numbers."""
    name = operator.packet.removesuffix("_copy").rstrip("_")
    return Verdict(OpStatus.FALLBACK, COMPLEX) if name in _COMPLEX or operator.packet in _COMPLEX else None


MEMORY = "memory management and copies: the runtime's, not a compiler's"
_MEMORY = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_",
    "resize", "resize_as_", "resize_as", "_resize_output_", "_resize_output", "set_", "set", "copy_", "copy",
    "_copy_from", "_copy_from_and_resize", "_to_copy", "clone", "_lazy_clone", "_local_scalar_dense",
    "_pin_memory", "is_pinned", "record_stream", "lift", "lift_fresh_copy", "_reshape_copy", "is_set_to",
    "is_same_size", "sparse_dim", "dense_dim", "is_coalesced", "_has_same_storage_numel", "_fw_primal",
    "_make_dual", "_new_zeros_with_same_feature_meta", "_efficientzerotensor", "_make_dep_token",
    "sym_constrain_range", "sym_constrain_range_for_size", "_functional_sym_constrain_range",
    "_functional_sym_constrain_range_for_size", "_assert_scalar", "_functional_assert_scalar",
    "_assert_tensor_metadata", "_print",
}  # fmt: skip


def memory(operator: Operator, known: Mapping[str, Operator]) -> Verdict | None:
    """Allocation, resizing, copies and questions about a tensor that read no element."""
    return Verdict(OpStatus.NATIVE, MEMORY) if operator.packet in _MEMORY else None


VIEW = "a view: only sizes, strides and offset change"


def views(operator: Operator, known: Mapping[str, Operator]) -> Verdict | None:
    """Operators whose result aliases an argument that they do not write, the copying forms of these among them."""
    if operator.is_view:
        return Verdict(OpStatus.NATIVE, VIEW)
    origin = operator.packet.removesuffix("_copy")
    if origin != operator.packet and any(other.packet == origin and other.is_view for other in known.values()):
        return Verdict(OpStatus.NATIVE, "a view and a copy of it")
    if operator.is_inplace_view:
        return Verdict(OpStatus.NATIVE, VIEW)
    return None


GENERATOR = "drawn on the device from its counter-based generator"
_RANDOM = {
    "uniform", "normal", "normal_functional", "random", "bernoulli", "exponential", "geometric", "cauchy",
    "log_normal", "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm",
    "native_dropout", "_fused_dropout", "rrelu_with_noise", "rrelu_with_noise_functional", "_philox_uniform",
    "_philox_normal",
}  # fmt: skip
_RANDOM_ON_HOST = {"multinomial", "binomial", "poisson", "_standard_gamma", "_sample_dirichlet"}


def random(operator: Operator, known: Mapping[str, Operator]) -> Verdict | None:
    """Draws: those that a fixed number of random bits gives are the device's, rejection sampling is the host's."""
    name = operator.packet.rstrip("_")
    if name in _RANDOM:
        return Verdict(OpStatus.NATIVE, GENERATOR)
    if name in _RANDOM_ON_HOST:
        return Verdict(OpStatus.FALLBACK, "the number of random bits it needs depends on the data")
    return None


_ADAM = ("aten::lerp.Scalar", "aten::addcmul", "aten::addcdiv", "aten::sqrt", "aten::mul.Tensor", "aten::add.Tensor")
_SGD = ("aten::mul.Tensor", "aten::add.Tensor")
_CELL = ("aten::sigmoid", "aten::tanh", "aten::mul.Tensor", "aten::add.Tensor", "aten::cat")
_ATTENTION = ("aten::bmm", "aten::_softmax", "aten::add.Tensor")

COMPOSED: Mapping[str, tuple[str, ...]] = {
    # optimizers and gradient scaling
    "_fused_adam": _ADAM,
    "_fused_adamw": _ADAM,
    "_fused_sgd": _SGD,
    "_fused_adagrad": _ADAM,
    "_amp_foreach_non_finite_check_and_unscale": ("aten::isinf", "aten::any", "aten::mul.Tensor"),
    "_amp_update_scale": ("aten::where.self", "aten::mul.Tensor"),
    # the names under which a backend of its own sees convolution and attention
    "convolution_overrideable": ("aten::convolution",),
    "_convolution": ("aten::convolution",),
    "convolution_backward": ("aten::convolution", "aten::flip", "aten::sum.dim_IntList"),
    "convolution_backward_overrideable": ("aten::convolution", "aten::flip", "aten::sum.dim_IntList"),
    "conv_tbc": ("aten::convolution",),
    "_slow_conv2d_forward": ("aten::convolution",),
    "_slow_conv2d_backward": ("aten::convolution", "aten::flip", "aten::sum.dim_IntList"),
    "slow_conv3d_forward": ("aten::convolution",),
    "slow_conv_dilated2d": ("aten::convolution",),
    "slow_conv_dilated3d": ("aten::convolution",),
    "slow_conv_transpose2d": ("aten::convolution",),
    "slow_conv_transpose3d": ("aten::convolution",),
    "_nnpack_spatial_convolution": ("aten::convolution",),
    "_scaled_dot_product_flash_attention_for_cpu": _ATTENTION,
    "_scaled_dot_product_flash_attention_for_cpu_backward": (*_ATTENTION, "aten::_softmax_backward_data"),
    "_scaled_dot_product_fused_attention_overrideable": _ATTENTION,
    "_scaled_dot_product_fused_attention_overrideable_backward": (*_ATTENTION, "aten::_softmax_backward_data"),
    "_fused_sdp_choice": (),
    "_thnn_fused_lstm_cell": _CELL,
    "_thnn_fused_lstm_cell_backward_impl": _CELL,
    "_thnn_fused_gru_cell": _CELL,
    "_thnn_fused_gru_cell_backward": _CELL,
    "_native_multi_head_attention": (*_ATTENTION, "aten::addmm"),
    "_transform_bias_rescale_qkv": ("aten::add.Tensor", "aten::mul.Tensor"),
    "_transformer_encoder_layer_fwd": (*_ATTENTION, "aten::addmm", "aten::native_layer_norm", "aten::gelu"),
    "_masked_softmax": ("aten::where.self", "aten::_softmax"),
    "_masked_softmax_backward": ("aten::where.self", "aten::_softmax_backward_data"),
    # pooling backward: each output scatters into, or spreads over, its window
    "max_pool2d_with_indices_backward": ("aten::scatter_add",),
    "max_pool3d_with_indices_backward": ("aten::scatter_add",),
    "adaptive_max_pool2d_backward": ("aten::scatter_add",),
    "adaptive_max_pool3d_backward": ("aten::scatter_add",),
    "fractional_max_pool2d_backward": ("aten::scatter_add",),
    "fractional_max_pool3d_backward": ("aten::scatter_add",),
    "avg_pool2d_backward": ("aten::convolution",),
    "avg_pool3d_backward": ("aten::convolution",),
    "_adaptive_avg_pool2d_backward": ("aten::mm",),
    "_adaptive_avg_pool3d": ("aten::mm",),
    "_adaptive_avg_pool3d_backward": ("aten::mm",),
    # resampling and padding are linear in the data: a gather forward, a scatter or a product with a constant back
    "upsample_bilinear2d": ("aten::mm",),
    "upsample_trilinear3d": ("aten::mm",),
    "upsample_bicubic2d": ("aten::mm",),
    "upsample_linear1d_backward": ("aten::mm",),
    "upsample_bilinear2d_backward": ("aten::mm",),
    "upsample_trilinear3d_backward": ("aten::mm",),
    "upsample_bicubic2d_backward": ("aten::mm",),
    "upsample_nearest1d_backward": ("aten::scatter_add",),
    "upsample_nearest2d_backward": ("aten::scatter_add",),
    "upsample_nearest3d_backward": ("aten::scatter_add",),
    "_upsample_nearest_exact1d_backward": ("aten::scatter_add",),
    "_upsample_nearest_exact2d_backward": ("aten::scatter_add",),
    "_upsample_nearest_exact3d_backward": ("aten::scatter_add",),
    "replication_pad1d_backward": ("aten::scatter_add",),
    "replication_pad2d_backward": ("aten::scatter_add",),
    "replication_pad3d_backward": ("aten::scatter_add",),
    # small arithmetic
    "_add_relu": ("aten::add.Tensor", "aten::relu"),
    "_addmm_activation": ("aten::addmm", "aten::relu", "aten::gelu"),
    "_aminmax": ("aten::amin", "aten::amax"),
    "_stack": ("aten::cat",),
    "_is_all_true": ("aten::all",),
    "_is_any_true": ("aten::any",),
    "__lshift__": ("aten::bitwise_left_shift.Tensor",),
    "__ilshift__": ("aten::bitwise_left_shift.Tensor",),
    "__rshift__": ("aten::bitwise_right_shift.Tensor",),
    "__irshift__": ("aten::bitwise_right_shift.Tensor",),
    "_logcumsumexp": ("aten::logcumsumexp",),
    "_grouped_mm": ("aten::mm",),
    "_int_mm": ("aten::mm",),
    "equal": ("aten::eq.Tensor", "aten::all"),
    "allclose": ("aten::sub.Tensor", "aten::abs", "aten::le.Tensor", "aten::all"),
    "unsafe_split_with_sizes": ("aten::split_with_sizes", "aten::clone"),
    # out forms of operators that have no row because PyTorch takes them apart
    "adaptive_avg_pool1d": ("aten::_adaptive_avg_pool2d",),
    "adaptive_avg_pool2d": ("aten::_adaptive_avg_pool2d",),
    "adaptive_avg_pool3d": ("aten::_adaptive_avg_pool3d",),
    "adaptive_avg_pool3d_backward": ("aten::_adaptive_avg_pool3d_backward",),
    "avg_pool1d": ("aten::avg_pool2d",),
    "linear": ("aten::addmm",),
    "softmax": ("aten::_softmax",),
    "log_softmax": ("aten::_log_softmax",),
    "hardshrink_backward": ("aten::where.self", "aten::abs"),
    "softshrink_backward": ("aten::where.self", "aten::abs"),
    "hypot": ("aten::sqrt", "aten::mul.Tensor", "aten::add.Tensor"),
    "trace": ("aten::diagonal", "aten::sum"),
    "dist": ("aten::sub.Tensor", "aten::linalg_vector_norm"),
    "norm": ("aten::linalg_vector_norm",),
    "linalg__powsum": ("aten::pow.Tensor_Scalar", "aten::sum.dim_IntList"),
    "affine_grid_generator": ("aten::linspace", "aten::bmm"),
    "native_channel_shuffle": ("aten::view", "aten::permute"),
    "fill": ("aten::full_like",),
    "zero": ("aten::zeros_like",),
    "range": ("aten::arange.start_step",),
    "fft_fftfreq": ("aten::arange.start_step", "aten::mul.Tensor"),
    "fft_rfftfreq": ("aten::arange.start_step", "aten::mul.Tensor"),
    "bartlett_window": ("aten::arange.start_step", "aten::abs"),
    "blackman_window": ("aten::arange.start_step", "aten::cos"),
    "hamming_window": ("aten::arange.start_step", "aten::cos"),
    "hann_window": ("aten::arange.start_step", "aten::cos"),
    "_weight_norm_interface": ("aten::linalg_vector_norm", "aten::mul.Tensor"),
    "_weight_norm_interface_backward": ("aten::linalg_vector_norm", "aten::mul.Tensor", "aten::sum.dim_IntList"),
    "_index_put_impl": ("aten::index_put",),
    "_unsafe_index": ("aten::index.Tensor",),
    "_unsafe_index_put": ("aten::index_put",),
    "embedding_renorm": ("aten::index_select", "aten::linalg_vector_norm", "aten::index_put"),
    "sort.stable": ("aten::sort",),
    "block_diag": ("aten::cat", "aten::constant_pad_nd"),
    "diagonal_backward": ("aten::diagonal", "aten::scatter.src"),
    "diagonal_scatter": ("aten::diagonal", "aten::scatter.src"),
    "put": ("aten::scatter.src", "aten::scatter_add"),
    "scatter.value_reduce": ("aten::scatter.value", "aten::scatter_add"),
    "slice_inverse": ("aten::slice_scatter",),
    "lift_fresh": (),
    # normalization in other dress
    "_native_batch_norm_legit_functional": ("aten::native_batch_norm",),
    "_native_batch_norm_legit_no_training": ("aten::native_batch_norm",),
    "_native_batch_norm_legit": ("aten::native_batch_norm",),
    "_batch_norm_with_update": ("aten::native_batch_norm",),
    "_batch_norm_with_update_functional": ("aten::native_batch_norm",),
    "_batch_norm_no_update": ("aten::native_batch_norm",),
    "batch_norm_update_stats": ("aten::var_mean.correction",),
    # quantization-aware training rounds in float
    "fake_quantize_per_tensor_affine_cachemask": ("aten::round", "aten::clamp"),
    "fake_quantize_per_channel_affine_cachemask": ("aten::round", "aten::clamp"),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": ("aten::round", "aten::clamp"),
    "_fake_quantize_learnable_per_tensor_affine": ("aten::round", "aten::clamp"),
    "_fake_quantize_learnable_per_channel_affine": ("aten::round", "aten::clamp"),
    # gradients of packed values
    "glu_jvp": ("aten::glu", "aten::mul.Tensor"),
    "linear_backward": ("aten::mm", "aten::sum.dim_IntList"),
    "matmul_backward": ("aten::bmm", "aten::sum.dim_IntList"),
}
"""Operators that torch-mlir does not know and that a short sum of operators which it does know computes.

The key is a packet's name, or one overload's, without a trailing underscore; the list is what it is made of.
"""


def composed(operator: Operator, known: Mapping[str, Operator]) -> Follows | None:
    """Operators made of others."""
    name = operator.packet if operator.packet.endswith("__") else operator.packet.rstrip("_")
    for key in (f"{name}.{operator.overload}" if operator.overload else name, name):
        if key in COMPOSED:
            parts = COMPOSED[key]
            reason = f"made of {', '.join(parts)}" if parts else "answered on the host without data"
            return Follows(reason, all_of=parts)
    return None


def variant(operator: Operator, known: Mapping[str, Operator]) -> Follows | None:
    """In-place, out and functional forms of one operator share its status."""
    if operator.base and operator.base in known:
        return Follows(f"as {operator.base}", all_of=(operator.base,))
    return None


def foreach(operator: Operator, known: Mapping[str, Operator]) -> Follows | None:
    """An operator on lists is that operator on each element."""
    if not operator.packet.startswith("_foreach_"):
        return None
    single = operator.packet.removeprefix("_foreach_").rstrip("_")
    single = {"norm": "linalg_vector_norm", "max": "max", "powsum": "linalg__powsum"}.get(single, single)
    overloads = tuple(name for name, other in known.items() if other.packet == single)
    inplace = tuple(name for name, other in known.items() if other.packet == f"{single}_")
    choices = overloads or inplace
    return Follows(f"aten::{single} on each tensor of the list", any_of=choices) if choices else None


RULES: tuple[Rule, ...] = (layout, complex_numbers, memory, views, random, foreach, composed, variant)
