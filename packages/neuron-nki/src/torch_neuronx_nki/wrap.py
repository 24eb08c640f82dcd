"""Kernels in graphs: ``wrap_nki``, and the path of a call that is traced."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from torch_neuronx_nki import _compat, collectives, graph_calls, launch, trace
from torch_neuronx_nki.errors import NkiLaunchError
from torch_neuronx_nki.graph_calls import GraphCall
from torch_neuronx_nki.jit import Kernel, jit
from torch_neuronx_nki.options import options


def wrap_nki(kernel: Any) -> Kernel:
    """Return ``kernel`` as a function for traced code: ``wrap_nki(kernel)[cores](*tensors, **constants)``.

    Eager calls run it. Under ``torch.compile`` each call is one node of the graph, on tensors without data it gives the
    shapes, under ``torch.func.vmap`` it is launched once per element. Arguments that are not tensors are constants.
    A kernel has no gradient by itself: give the operator around it one (``nki_op``). Kernels that ``nki.jit`` has made
    can be called in all these ways without it.

    Raises :class:`NkiLaunchError` for what is neither a kernel nor a function.
    """
    if isinstance(kernel, Kernel):
        return kernel
    if not callable(kernel):
        raise NkiLaunchError(f"wrap_nki is given {kernel!r}. Give it a function decorated with @nki.jit.")
    made: Kernel = jit(kernel)
    return made


def is_traced(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call must become a node: a tensor is a stand-in, or somebody watches the operators."""
    return _compat.operators_are_watched() or any(
        isinstance(leaf, torch.Tensor) and _compat.is_stand_in(leaf) for leaf in tree_leaves((args, dict(kwargs)))
    )


def call_as_node(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    lnc: int,
    settings: Mapping[str, Any],
) -> Any:
    """Call the operator of a launch, and return what the kernel returns.

    Raises :class:`NkiLaunchError` where a launch cannot be one, and what the kernel raises without data.
    """
    tensors: list[torch.Tensor] = []
    arguments = graph_calls.encode((args, dict(kwargs)), tensors)
    name = graph_calls.name_of(function)
    if not tensors:
        raise NkiLaunchError(f"{name} is traced without a tensor among its arguments. Give it one: its device is used.")
    shapes = tuple((tuple(map(int, tensor.shape)), tensor.dtype) for tensor in tensors)
    draft = GraphCall(
        kernel=name,
        fingerprint=graph_calls.remember(function),
        lnc=lnc,
        arguments=arguments,
        mutated=(),
        results=(),
        settings=dict(settings),
        version=".".join(map(str, options(**settings).language)),
        inputs=graph_calls.input_names(function, args, kwargs),
    )
    call, result = _shaped(draft, shapes)
    values = graph_calls.operator(call.outputs)(tensors, *call.constants())
    values = [values] if call.outputs == 1 else list(values)
    changed, new = values[: len(call.mutated)], values[len(call.mutated) :]
    for position, value in zip(call.mutated, changed, strict=True):
        tensors[position].copy_(value)
    return tree_map(lambda leaf: leaf.take(tensors, new) if isinstance(leaf, _Place) else leaf, result)


class _Place:
    """Stands for a tensor in what a kernel returns."""

    def __init__(self, position: int, *, is_new: bool) -> None:
        self.position = position
        self.is_new = is_new

    def take(self, tensors: list[torch.Tensor], new: list[torch.Tensor]) -> torch.Tensor:
        return (new if self.is_new else tensors)[self.position]


_shapes: dict[tuple[str, Any], tuple[GraphCall, Any]] = {}
_MAX_SHAPES = 1000


def _shaped(draft: GraphCall, shapes: tuple[Any, ...]) -> tuple[GraphCall, Any]:
    """Run the kernel without data; return the call with its results, and the form of what it returns."""
    key = (draft.backend_config(), shapes)
    found = _shapes.get(key)
    if found is None:
        if len(_shapes) >= _MAX_SHAPES:
            _shapes.clear()
        with _compat.without_modes():
            found = _shapes[key] = _shape(draft, shapes)
    return found


def _shape(draft: GraphCall, shapes: tuple[Any, ...]) -> tuple[GraphCall, Any]:
    metas = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in shapes]
    args, kwargs = graph_calls.decode(draft.arguments, metas)
    written = _Written()
    function = graph_calls.function_of(draft)
    result = launch.run(
        function, args, kwargs, options=options(**draft.settings), lnc=draft.lnc, observers=(written.observe,)
    )
    new = graph_calls.new_tensors(result, metas)
    # the simulator numbers arguments in the order in which it meets them, which is the order of `metas`
    order = [position for position in written.order() if position < len(metas)]
    call = dataclasses.replace(
        draft,
        mutated=tuple(order),
        results=tuple((tuple(value.shape), str(value.dtype).removeprefix("torch.")) for value in new),
        has_collectives=written.has_collectives,
    )
    if not 1 <= call.outputs <= graph_calls.MAX_RESULTS:
        raise NkiLaunchError(
            f"{draft.kernel} gives {call.outputs} tensors, counting arguments that it writes to, and a node of a graph "
            f"gives 1 to {graph_calls.MAX_RESULTS}. Return or write fewer, or launch it outside of compiled code."
        )

    def place(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        for places, is_new in ((metas, False), (new, True)):
            for position, value in enumerate(places):
                if value is leaf:
                    return _Place(position, is_new=is_new)
        return leaf

    return call, tree_map(place, result)


class _Written:
    """Observes which arguments a launch writes to, and whether it communicates."""

    def __init__(self) -> None:
        self.has_collectives = False
        self.arguments: dict[int, int] = {}
        self.positions: set[int] = set()

    def observe(self, event: trace.Event) -> None:
        match event:
            case trace.Allocation(is_argument=True):
                self.arguments.setdefault(event.id, len(self.arguments))
            case trace.Instruction():
                self.has_collectives |= event.opcode in collectives.NAMES
                self.positions.update(
                    self.arguments[operand.allocation]
                    for operand in event.operands
                    if operand.access is not trace.Access.READ and operand.allocation in self.arguments
                )

    def order(self) -> list[int]:
        return sorted(self.positions)
