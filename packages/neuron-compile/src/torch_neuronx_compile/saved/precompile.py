"""``TORCH_CACHING_PRECOMPILE``: Dynamo records what it made of functions, and nobody writes it until we do, at exit."""

import atexit
import os

from torch_neuronx_compile._compat import caches_packages, write_packages


class _Process:
    registered = 0
    """Process that writes when it ends; a forked child leaves the parent's functions to the parent."""


def write_at_exit() -> None:
    """Have Dynamo's entries written when this process ends, if Dynamo records any."""
    if caches_packages() and _Process.registered != os.getpid():
        _Process.registered = os.getpid()
        atexit.register(_write, os.getpid())


def _write(process: int) -> None:
    if process == os.getpid():
        write_packages()
