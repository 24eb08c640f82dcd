"""Give every random operator its seed as an input, so that forward, backward and recomputation agree.

``seed_random_operators`` runs on the joint graph, before it is cut in two: the seeds are values that the forward
graph hands to the backward graph. ``lift_seeds`` runs on each graph: drawing them is the host's work.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from torch_neuronx_compile import ops
from torch_neuronx_compile.passes.constants import append_placeholder
from torch_neuronx_compile.passes.emit import Emitter

aten = torch.ops.aten

Formula = Callable[..., Any]
"""Takes the emitter, the seed and the operator's arguments by name; returns the node or nodes that replace it."""


def seed_random_operators(graph: fx.Graph) -> None:
    """Replace every random operator that has a seeded form; others stay, and fail to lower by name."""
    ops.define()
    formulas = _formulas()
    drawn = 0
    for node in list(graph.nodes):
        formula = formulas.get(node.target) if node.op == "call_function" else None
        if formula is None:
            continue
        schema = node.target._schema.arguments
        arguments = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
        arguments |= {argument.name: value for argument, value in zip(schema, node.args, strict=False)}
        arguments |= node.kwargs
        emit = Emitter(graph, node)
        # A seed of its own for each: common subexpression elimination would merge two equal draws.
        seed = emit(torch.ops.neuron_compile.draw_seed.default, drawn, _device(node))
        seed.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        drawn += 1
        _replace(graph, node, formula(emit, seed, **{_python_name(name): value for name, value in arguments.items()}))
    if drawn:
        graph.eliminate_dead_code()
        graph.lint()


def lift_seeds(graph: fx.Graph) -> int:
    """Turn the draws of seeds into one input, a vector of seeds; return its length, 0 where there is none."""
    ops.define()
    draws = list(graph.find_nodes(op="call_function", target=torch.ops.neuron_compile.draw_seed.default))
    if not draws:
        return 0
    mode = draws[0].meta["val"].fake_mode
    with mode:
        vector = torch.empty(len(draws), dtype=torch.int64, device=draws[0].meta["val"].device)
    seeds = append_placeholder(graph, "seeds", vector)
    for i, node in enumerate(draws):
        emit = Emitter(graph, node)
        node.replace_all_uses_with(emit(aten.select.int, seeds, 0, i))
        graph.erase_node(node)
    return len(draws)


def _device(node: fx.Node) -> torch.device:
    value = node.meta["val"]
    device: torch.device = (value[0] if isinstance(value, (tuple, list)) else value).device
    return device


def _python_name(name: str) -> str:
    return {"from": "from_", "self": "self_"}.get(name, name)


def _replace(graph: fx.Graph, node: fx.Node, result: fx.Node | tuple[fx.Node, ...]) -> None:
    if isinstance(result, fx.Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):
            item = user.args[1]
            assert isinstance(item, int)
            user.replace_all_uses_with(result[item])
            graph.erase_node(user)
    graph.erase_node(node)


def _size(node: fx.Node) -> list[int]:
    return [int(extent) for extent in node.meta["val"].shape]


def _uniform(emit: Emitter, seed: fx.Node, size: list[int], dtype: torch.dtype | None) -> fx.Node:
    drawn = emit(torch.ops.neuron_compile.uniform.default, seed, size)
    return _cast(emit, drawn, dtype or torch.get_default_dtype())


def _cast(emit: Emitter, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    if node.meta["val"].dtype == dtype:
        return node
    return emit(torch.ops.prims.convert_element_type.default, node, dtype)


def _normal(emit: Emitter, seed: fx.Node, size: list[int], dtype: torch.dtype | None) -> fx.Node:
    """Box and Muller: two uniform numbers for each normal one."""
    drawn = emit(torch.ops.neuron_compile.uniform.default, seed, [2, *size])
    radius, angle = (emit(aten.select.int, drawn, 0, i) for i in (0, 1))
    radius = emit(aten.sub.Scalar, emit(aten.mul.Scalar, radius, -1.0), -1.0)  # (0, 1]: its logarithm is finite
    radius = emit(aten.sqrt.default, emit(aten.mul.Scalar, emit(aten.log.default, radius), -2.0))
    angle = emit(aten.cos.default, emit(aten.mul.Scalar, angle, 2.0 * math.pi))
    return _cast(emit, emit(aten.mul.Tensor, radius, angle), dtype or torch.get_default_dtype())


def _integers(emit: Emitter, seed: fx.Node, low: int, high: int, size: list[int], dtype: torch.dtype | None) -> fx.Node:
    drawn = emit(torch.ops.neuron_compile.integers.default, seed, int(low), int(high), size)
    return _cast(emit, drawn, dtype or torch.int64)


def _below(emit: Emitter, seed: fx.Node, like: fx.Node, probability: float | fx.Node) -> fx.Node:
    """Return a mask that is true with ``probability``."""
    drawn = emit(torch.ops.neuron_compile.uniform.default, seed, _size(like))
    if isinstance(probability, fx.Node):
        return emit(aten.lt.Tensor, drawn, _cast(emit, probability, torch.float32))
    return emit(aten.lt.Scalar, drawn, float(probability))


def _native_dropout(
    emit: Emitter, seed: fx.Node, input: fx.Node, p: float, train: bool | None
) -> tuple[fx.Node, fx.Node]:
    if train is False or p == 0.0:
        return input, emit(aten.ones_like.default, input, dtype=torch.bool)
    if p == 1.0:
        return emit(aten.zeros_like.default, input), emit(aten.zeros_like.default, input, dtype=torch.bool)
    kept = _below(emit, seed, input, 1.0 - p)
    scaled = emit(aten.mul.Scalar, input, 1.0 / (1.0 - p))
    zero = emit(aten.zeros_like.default, input)
    return emit(aten.where.self, kept, scaled, zero), kept


def _permutation(emit: Emitter, seed: fx.Node, n: int, dtype: torch.dtype) -> fx.Node:
    """Order the positions by a random number each; of two equal ones the first stays in front."""
    if n < 2:
        return emit(aten.full.default, [n], 0, dtype=dtype, device=seed.meta["val"].device)
    ops.define()
    drawn = emit(torch.ops.neuron_compile.integers.default, seed, 0, 2**31, [n])
    ordered = emit(torch.ops.neuron_compile.sort.default, drawn, 0, False)
    return _cast(emit, emit(operator.getitem, ordered, 1), dtype)


def _formulas() -> dict[Any, Formula]:
    def dtype_of(self_: fx.Node, dtype: torch.dtype | None) -> torch.dtype:
        return dtype or self_.meta["val"].dtype

    def rand(emit, seed, size, dtype, **_):  # type: ignore[no-untyped-def]
        return _uniform(emit, seed, size, dtype)

    def randn(emit, seed, size, dtype, **_):  # type: ignore[no-untyped-def]
        return _normal(emit, seed, size, dtype)

    def rand_like(emit, seed, self_, dtype, **_):  # type: ignore[no-untyped-def]
        return _uniform(emit, seed, _size(self_), dtype_of(self_, dtype))

    def randn_like(emit, seed, self_, dtype, **_):  # type: ignore[no-untyped-def]
        return _normal(emit, seed, _size(self_), dtype_of(self_, dtype))

    def randint(emit, seed, high, size, dtype, low=0, **_):  # type: ignore[no-untyped-def]
        return _integers(emit, seed, low, high, size, dtype)

    def randint_like(emit, seed, self_, high, dtype, low=0, **_):  # type: ignore[no-untyped-def]
        return _integers(emit, seed, low, high, _size(self_), dtype_of(self_, dtype))

    def randperm(emit, seed, n, dtype, **_):  # type: ignore[no-untyped-def]
        return _permutation(emit, seed, int(n), dtype or torch.int64)

    def bernoulli(emit, seed, self_, **_):  # type: ignore[no-untyped-def]
        return _cast(emit, _below(emit, seed, self_, self_), self_.meta["val"].dtype)

    def bernoulli_p(emit, seed, self_, p, **_):  # type: ignore[no-untyped-def]
        return _cast(emit, _below(emit, seed, self_, p), self_.meta["val"].dtype)

    def uniform(emit, seed, self_, from_, to, **_):  # type: ignore[no-untyped-def]
        drawn = _uniform(emit, seed, _size(self_), self_.meta["val"].dtype)
        return emit(aten.add.Scalar, emit(aten.mul.Scalar, drawn, to - from_), from_)

    def normal_functional(emit, seed, self_, mean, std, **_):  # type: ignore[no-untyped-def]
        drawn = _normal(emit, seed, _size(self_), self_.meta["val"].dtype)
        return emit(aten.add.Scalar, emit(aten.mul.Scalar, drawn, std), mean)

    return {
        aten.native_dropout.default: _native_dropout,
        aten.rand.default: rand,
        aten.randn.default: randn,
        aten.rand_like.default: rand_like,
        aten.randn_like.default: randn_like,
        aten.randint.default: randint,
        aten.randint.low: randint,
        aten.randint_like.default: randint_like,
        aten.randint_like.low_dtype: randint_like,
        aten.randperm.default: randperm,
        aten.bernoulli.default: bernoulli,
        aten.bernoulli.p: bernoulli_p,
        aten.uniform.default: uniform,
        aten.normal_functional.default: normal_functional,
    }
