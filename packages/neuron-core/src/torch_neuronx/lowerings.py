"""How an operator of a compiled graph becomes StableHLO, and what the emulator runs for custom calls and collectives.

A handler is a capsule with an XLA FFI handler (``xla/ffi/api/ffi.h``, in ``jaxlib/include``). It gets the operands, the
results and, as attributes by name, the operator's arguments that are not tensors: ``bool``, ``int64_t``, ``double``,
strings and lists of ``int64_t``. Buffers are row-major. It runs on a thread of XLA, without the GIL.

A handler may also be a Python function ``handler(operands, results, attributes)``: two lists of CPU tensors, which are
views of the buffers, and a dictionary. It writes to the results, and what it raises reaches the caller of the graph.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


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
    """Returns the handler, a capsule or a Python function; called once, in the process that runs the graph."""
    fingerprint: str
    """Changes whenever the handler may compute something else; part of every key of a graph that uses it."""
    ordered: bool | str = False
    """Whether calls keep the order of the program (random draws, stores), among themselves and with collectives.

    Such a handler takes one more operand and gives one more result, an ``ffi::Token`` each, in front of the others. The
    name of an argument of the operator, a ``bool``, has that say so of each call; then the handler is a Python
    function, which is not shown tokens.
    """
    mutates: tuple[int, ...] = ()
    """Positions of the operands that the call writes to.

    The operator's first results are those operands as they are afterwards: each has its operand's type and its memory.
    Whatever else of the program reads such an operand sees what was there before.
    """
    worker_stub: str | None = None
    """``module:function`` that returns a capsule for the compile worker, which has no torch; the capsule is never run.

    ``None``: the worker's own stub, which accepts any operands, results and attributes.
    """


@dataclass(frozen=True, slots=True)
class Expansion:
    """One operator that becomes operations of StableHLO in the compile worker."""

    op: str
    """Name of the FX target, with overload: ``mylib::scale.default``."""
    build: str
    """``module:function`` in the worker, which has no torch.

    Called with an operation of ``jaxlib.mlir`` whose operands are the operator's tensors and whose result types are to
    be kept, and with the operator's other arguments by name. It builds at the current insertion point and returns the
    new value, or a list of them. ``NotImplementedError``, with a reason, refuses the call.
    """
    fingerprint: str
    """Changes whenever the operations may be others; part of every key of a graph that uses it."""
    rewrite: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Called where the graph is compiled with the arguments that are not tensors, by name; returns those to replace.

    For what only that process knows, such as the members of a process group. Types stay those of the operator's schema.
    ``NotImplementedError`` refuses the call.
    """


@dataclass(frozen=True, slots=True)
class Collective:
    """What the emulator runs for one collective operation of StableHLO. Its calls are always ordered.

    Operands and results are the operation's, each after an ``ffi::Token``. Attributes are the operation's own numbers
    under their own names (``all_gather_dim``, ``scatter_dimension``, ``split_dimension``, ``concat_dimension``,
    ``split_count``), and:

    - ``replica_groups``: the ranks of all groups in a row, ``group_size`` of them in each; -1 fills up a short group.
    - ``source_target_pairs``: the pairs in a row.
    - ``channel_id``: 0 where the operation names no channel.
    - ``use_global_device_ids``: a ``bool``.
    - ``reduction``: the operation between two elements: ``add``, ``maximum``, ``minimum``, ``multiply``, ``and``,
      ``or`` or ``xor``.
    """

    op: str
    """Name of the operation without its dialect: ``all_reduce``."""
    custom_call: str
    """Name of the custom-call target in the emulator's own copy of a program."""
    handler: Callable[[], object]
    """Returns the capsule of the XLA FFI handler; called once, in the process that runs the graph."""
    fingerprint: str
    """Changes with what the handler takes and gives; part of the key of everything the emulator compiles."""
    take_error: Callable[[], None] | None = None
    """Raises the exception behind the latest failure of the handler, once: the program then ends with it.

    ``None``, and a call that raises nothing: the program ends with :class:`NEFFExecutionError` and the handler's words.
    """
