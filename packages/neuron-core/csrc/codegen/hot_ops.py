"""The operators that get a kernel of their own instead of the boxed path: what training and inference call per step."""

POINTWISE = """
    abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min copysign cos cosh div eq erf erfc
    erfinv exp exp2 expm1 floor floor_divide fmax fmin fmod frac ge gt hypot isinf isnan le lerp lgamma log log10
    log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit lt masked_fill maximum minimum mul
    nan_to_num ne neg pow reciprocal remainder round rsqrt rsub sigmoid sign signbit sin sinc sinh special_entr sqrt
    square sub tan tanh trunc where xlogy
"""

ACTIVATIONS = """
    _prelu_kernel _prelu_kernel_backward celu elu elu_backward gelu gelu_backward glu glu_backward hardshrink
    hardshrink_backward hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward
    leaky_relu leaky_relu_backward log_sigmoid_backward log_sigmoid_forward logit_backward mish mish_backward relu
    selu sigmoid_backward silu silu_backward softplus softplus_backward softshrink softshrink_backward tanh_backward
    threshold threshold_backward
"""

REDUCTIONS = """
    _log_softmax _log_softmax_backward_data _logcumsumexp _softmax _softmax_backward_data all amax amin any argmax
    argmin argsort count_nonzero cumprod cumsum linalg_vector_norm logsumexp max mean median min mode norm prod sort
    std std_mean sum topk var var_mean
"""

LINEAR_ALGEBRA = "addbmm addmm addmv addr baddbmm bmm dot mm mv tril triu _addmm_activation vdot"

SHAPES = """
    _index_put_impl _unsafe_index cat constant_pad_nd copysign embedding embedding_dense_backward fill flip gather
    index index_add index_copy index_fill index_put index_select masked_select narrow_copy nonzero repeat_interleave
    roll scatter scatter_add scatter_reduce slice_backward zero
"""

NETWORKS = """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward adaptive_max_pool2d adaptive_max_pool2d_backward avg_pool2d
    avg_pool2d_backward binary_cross_entropy binary_cross_entropy_backward huber_loss huber_loss_backward
    max_pool2d_with_indices max_pool2d_with_indices_backward mse_loss mse_loss_backward native_batch_norm
    native_batch_norm_backward native_dropout_backward native_group_norm native_group_norm_backward
    native_layer_norm native_layer_norm_backward nll_loss2d_backward nll_loss2d_forward nll_loss_backward
    nll_loss_forward smooth_l1_loss smooth_l1_loss_backward upsample_bilinear2d upsample_bilinear2d_backward
    upsample_nearest2d upsample_nearest2d_backward
"""

RANDOM = "bernoulli cauchy exponential geometric log_normal multinomial normal random uniform"

# The fused optimizers' one call per step covers all parameters; the boxed path costs nothing beside it.

HOT_OPS = frozenset((POINTWISE + ACTIVATIONS + REDUCTIONS + LINEAR_ALGEBRA + SHAPES + NETWORKS + RANDOM).split())
