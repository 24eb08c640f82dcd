"""What decides, besides the traced function itself, what becomes of it: for the keys of PyTorch's caches."""

import hashlib
import json
import secrets
import types
from collections.abc import Callable
from typing import Any

from torch_neuronx import config, plugins
from torch_neuronx_compile._compat import caches_functions, must_be_saved
from torch_neuronx_compile.compilers.select import toolchain
from torch_neuronx_compile.options import CompileOptions, falls_back, in_force
from torch_neuronx_compile.versions import versions

_VARIABLES = (config.EMULATOR_RELAXED, config.ENABLE_NKI_SDPA, config.ENABLE_NKI_RMS_NORM)
"""Variables that change the traced graph or its program."""


def cache_tag(options: CompileOptions) -> str | None:
    """Return what PyTorch's keys of what is being compiled must have in them, or ``None`` where nothing is kept."""
    # Artifacts are of graphs that were compiled: whoever keeps them wants to see every stage.
    if config.get(config.NEFF_DISABLE_CACHE) or config.get(config.PRESERVE_COMPILATION_ARTIFACTS):
        return secrets.token_hex() if must_be_saved() else None
    return fingerprint(options) if caches_functions() else None


def fingerprint(options: CompileOptions) -> str:
    """Return a digest of versions, target, compiler, flags, options, decompositions and lowerings.

    The processor is no part: a graph that was compiled on another one is compiled again from its program.
    """
    manager = plugins.manager()
    facts = {
        "versions": versions(),
        "compiler": toolchain(options).key(""),
        "falls back": falls_back(in_force(options)),
        "variables": {variable.name: config.get(variable) for variable in _VARIABLES},
        "decompositions": {str(op): _code(function) for op, function in manager.decompositions().items()},
        "lowerings": {op: [found.custom_call, found.fingerprint] for op, found in manager.lowerings().items()},
        "expansions": {op: [found.build, found.fingerprint] for op, found in manager.expansions().items()},
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _code(function: Callable[..., Any]) -> str:
    """Return a digest of a plugin's function: its name and its code, with the functions written inside it."""
    digest = hashlib.sha256()
    inner = getattr(function, "__wrapped__", getattr(function, "func", function))
    digest.update(f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', type(inner).__name__)}".encode())
    code = getattr(inner, "__code__", None)
    pending = [] if code is None else [code]
    while pending:
        current: types.CodeType = pending.pop()
        digest.update(current.co_code)
        for constant in current.co_consts:
            if isinstance(constant, types.CodeType):
                pending.append(constant)
            else:
                digest.update(repr(constant).encode())
        digest.update(repr(current.co_names).encode())
    return digest.hexdigest()
