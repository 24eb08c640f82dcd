"""How an operator of a compiled graph becomes a StableHLO custom call."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lowering:
    """One operator that crosses the compiler as a custom call.

    The chip's compiler takes the call by its target name. The emulator runs ``handler`` for it.
    """

    op: str
    """Name of the FX target, with overload: ``mylib::scale.default``."""
    custom_call: str
    """Name of the custom-call target in StableHLO."""
    handler: Callable[[], object]
    """Returns the capsule of the XLA FFI handler; called once, in the process that runs the graph."""
    fingerprint: str
    """Changes whenever the handler may compute something else; part of every key of a graph that uses it."""
    ordered: bool = False
    """Whether calls keep the order of the program (collectives, random draws, stores)."""
    mutates: tuple[int, ...] = ()
    """Positions of the operands that the call writes to."""
    worker_stub: str | None = None
    """``module:function`` that returns a capsule for the compile worker, which has no torch; the capsule is never run.

    ``None``: the worker's own stub, which accepts any operands, results and attributes.
    """
