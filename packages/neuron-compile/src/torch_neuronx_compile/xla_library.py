"""jaxlib, imported so that XLA does not write its start-up messages to the user's terminal.

Its private names that are used, as of 0.10.2:

- ``batched_device_put``, ``array_result_handler``, ``GSPMDSharding``, ``buffer_to_dlpack_managed_tensor``: the
  zero-copy door, in and out. The public one in jax adds its own array type and 20 us, and jaxlib's others import jax,
  a quarter of a second.
- ``mlir.mlir_module_to_xla_computation``: a program as a ``HloModuleProto``.
"""

import os

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # read once, while the library loads

_before = os.environ.get(_LEVEL)
os.environ.setdefault(_LEVEL, "1")
try:
    from jaxlib import _jax, xla_client
finally:
    if _before is None:
        del os.environ[_LEVEL]

__all__ = [
    "Sharding",
    "array_of_result",
    "array_over",
    "capsule_of_array",
    "compile_options",
    "to_hlo",
    "xla_client",
]

array_over = _jax.batched_device_put
array_of_result = _jax.array_result_handler
capsule_of_array = _jax.buffer_to_dlpack_managed_tensor
Sharding = _jax.GSPMDSharding


def compile_options() -> xla_client.CompileOptions:
    """Return the options under which programs are compiled and loaded."""
    options = xla_client.CompileOptions()
    # Without this XLA drops roundings to bfloat16 that the program asks for, and results drift from eager mode's.
    options.env_option_overrides = [("xla_allow_excess_precision", False)]
    return options


def to_hlo(module: str) -> bytes:
    """Return a StableHLO module as a serialized ``HloModuleProto``; raises what XLA raises."""
    # results that are no tuple need none
    computation = _jax.mlir.mlir_module_to_xla_computation(module, use_tuple_args=False, return_tuple=False)
    return bytes(computation.as_serialized_hlo_module_proto())
