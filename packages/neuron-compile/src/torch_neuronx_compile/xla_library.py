"""jaxlib, imported so that XLA does not write its start-up messages to the user's terminal."""

import os

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # read once, while the library loads

_before = os.environ.get(_LEVEL)
os.environ.setdefault(_LEVEL, "1")
try:
    from jaxlib import _jax, xla_client
finally:
    if _before is None:
        del os.environ[_LEVEL]

__all__ = ["_jax", "compile_options", "to_hlo", "xla_client"]


def compile_options() -> xla_client.CompileOptions:
    """Return the options under which programs are compiled and loaded."""
    options = xla_client.CompileOptions()
    # Without this XLA drops roundings to bfloat16 that the program asks for, and results drift from eager mode's.
    options.env_option_overrides = [("xla_allow_excess_precision", False)]
    return options


def to_hlo(module: str) -> bytes:
    """Return a StableHLO module as a serialized ``HloModuleProto``; raises what XLA raises."""
    # jaxlib 0.10.2 has no public name for this; results that are no tuple need none
    computation = _jax.mlir.mlir_module_to_xla_computation(module, use_tuple_args=False, return_tuple=False)
    return bytes(computation.as_serialized_hlo_module_proto())
