"""jaxlib, imported so that XLA does not write its start-up messages to the user's terminal."""

import os

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # read once, while the library loads

_before = os.environ.get(_LEVEL)
os.environ.setdefault(_LEVEL, "1")
try:
    from jaxlib import _jax, xla_client  # type: ignore[attr-defined]
finally:
    if _before is None:
        del os.environ[_LEVEL]

__all__ = ["_jax", "xla_client"]
