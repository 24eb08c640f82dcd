"""Draws programs."""

import re
from typing import Any

import torch
from hypothesis import strategies as st

from . import breaking, elementwise, products, reductions, shapes, writes
from .builder import Builder, Value
from .program import FLOATS, INTEGERS, Input, Layout, Program, make_inputs

_MODULES = (elementwise, reductions, shapes, products, writes)
_LAYOUTS = (Layout.CONTIGUOUS, *Layout)


@st.composite
def programs(draw: Any, *, gradients: bool = False, breaks: bool = False) -> Program:
    """Draw a program.

    With ``gradients`` all floating inputs are float32 and ask for one; with ``breaks`` statements may break the graph.
    """
    inputs: list[Input] = []
    build = Builder(draw)
    common = draw(st.lists(st.integers(1, 5), min_size=0, max_size=3))
    special = not gradients and draw(st.integers(0, 4)) == 0
    for _ in range(draw(st.integers(1, 3))):
        shape = common if draw(st.booleans()) else draw(st.lists(st.sampled_from((0, 1, 2, 3, 4, 5, 8)), max_size=4))
        floats = (torch.float32,) if gradients else FLOATS
        dtype = draw(st.sampled_from((*floats, *floats, *INTEGERS, torch.bool)))
        layout = draw(st.sampled_from(_LAYOUTS))
        if layout is Layout.SHARED and inputs and not gradients:
            found = Input(tuple(shape), inputs[-1].dtype, layout, False)
        else:
            layout = Layout.CONTIGUOUS if layout is Layout.SHARED else layout
            found = Input(tuple(shape), dtype, layout, gradients and dtype.is_floating_point, special)
        inputs.append(found)
    for i, tensor in enumerate(make_inputs(inputs)):
        build.values.append(Value(f"v{i}", tensor, exact=True))
        if 0 in tensor.stride():
            build.kept.add(tensor.untyped_storage().data_ptr())
    modules = (*_MODULES, breaking) if breaks else _MODULES
    wanted = draw(st.sampled_from((1, 4, 6, 8, 10)))
    for _ in range(4 * wanted):
        if len(build.statements) >= wanted:
            break
        draw(st.sampled_from(draw(st.sampled_from(modules)).FAMILIES))(build)
    return Program(tuple(inputs), tuple(build.statements), _outputs(draw, build, len(inputs)))


def _outputs(draw: Any, build: Builder, inputs: int) -> tuple[str, ...]:
    """Choose outputs: often whatever no other statement takes, so that every statement counts."""
    computed = [value.name for value in build.values[inputs:]] or ["v0"]
    if draw(st.integers(0, 3)):
        taken = re.findall(
            r"v\d+", " ".join(statement.partition(" = ")[2] or statement for statement in build.statements)
        )
        return tuple(name for name in computed if name not in taken) or (computed[-1],)
    outputs = draw(st.lists(st.sampled_from([*computed, "v0"]), max_size=2, unique=True))
    return tuple(outputs) if computed[-1] in outputs else (*outputs, computed[-1])
