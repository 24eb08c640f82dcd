"""Worker: whether one call of one overload lowers through torch-mlir to StableHLO with static shapes."""

import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import fx
from torch_mlir.extras.fx_decomp_util import get_decomposition_table

from tools.op_statuses._compat import OpOverload, decomposition_table, tree_flatten, tree_leaves, tree_unflatten
from tools.op_statuses.signatures import decode, find_overload
from torch_neuronx.testing.isolation import serve

_DYNAMIC = re.compile(r"tensor<[^>]*\?")
_DIAGNOSTIC = re.compile(r"error: (.*)")
_TABLE = get_decomposition_table()

Decompositions = dict[Any, Callable[..., Any]]


def tables(overload: OpOverload) -> list[tuple[str, Decompositions]]:
    """The decompositions to try, by name: torch-mlir's, then with PyTorch's own for this overload."""
    found: list[tuple[str, Decompositions]] = [("torch-mlir", _TABLE)]
    if overload not in _TABLE and overload in decomposition_table:
        found.append(("torch-mlir after PyTorch's decomposition", {**_TABLE, overload: decomposition_table[overload]}))
    return found


@contextmanager
def captured_errors() -> Iterator[IO[bytes]]:
    """Collect what MLIR writes to file descriptor 2; its diagnostics never reach the exception."""
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def trace(overload: OpOverload, args: list[Any], kwargs: dict[str, Any], table: Decompositions) -> torch.fx.GraphModule:
    """A graph of the one call with every tensor as an input, decomposed by a table."""
    leaves, spec = tree_flatten((args, kwargs))
    positions = [position for position, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        filled = list(leaves)
        for position, tensor in zip(positions, tensors, strict=True):
            filled[position] = tensor
        inner_args, inner_kwargs = tree_unflatten(filled, spec)
        return [leaf for leaf in tree_leaves(overload(*inner_args, **inner_kwargs)) if isinstance(leaf, torch.Tensor)]

    tensors = [leaves[position] for position in positions]
    return make_fx(call, decomposition_table=table, tracing_mode="fake")(*tensors)


def lift_constants(graph_module: torch.fx.GraphModule) -> None:
    """Turn tensors that tracing kept as attributes into inputs, as AOT Autograd does."""
    graph = graph_module.graph
    first = next(iter(graph.nodes))
    for node in [node for node in graph.nodes if node.op == "get_attr"]:
        with graph.inserting_before(first):
            placeholder = graph.placeholder(node.name)
        value = getattr(graph_module, node.target)
        placeholder.meta.update(node.meta, val=node.meta.get("val", value))
        node.replace_all_uses_with(placeholder)
        graph.erase_node(node)
    graph_module.recompile()


def has_complex(graph_module: torch.fx.GraphModule) -> bool:
    """Whether a complex tensor enters or leaves the graph."""
    output = next(node for node in graph_module.graph.nodes if node.op == "output")
    ends = [node for node in graph_module.graph.nodes if node.op == "placeholder"] + list(output.all_input_nodes)
    return any(isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].is_complex() for node in ends)


def lower(case: dict[str, Any]) -> dict[str, Any]:
    """Lower one recorded call; the answer says which way it did or, if not, at which stage each way failed."""
    overload = find_overload(case["op"])
    failures = []
    for name, table in tables(overload):
        failure = lower_with(overload, case, table)
        if failure is None:
            return {"lowered": True, "way": name, "failures": []}
        failures.append(failure)
    return {"lowered": False, "way": "", "failures": failures}


def lower_with(overload: OpOverload, case: dict[str, Any], table: Decompositions) -> dict[str, str] | None:
    """Lower with one table of decompositions; None, or the stage and the reason of the failure."""

    def tensor(shape: torch.Size, stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(shape, stride, dtype=dtype)

    args = decode(case["args"], tensor)
    kwargs = {key: decode(value, tensor) for key, value in case["kwargs"].items()}
    try:
        graph_module = trace(overload, args, kwargs, table)
    except Exception as error:  # any refusal to trace is the answer to the question asked
        return {"stage": "trace", "reason": first_line(error)}
    if has_complex(graph_module):
        return {"stage": "dtype", "reason": "complex numbers"}
    lift_constants(graph_module)
    with captured_errors() as errors:
        try:
            module = fx.stateless_fx_import(graph_module, output_type="stablehlo")
        except Exception as error:  # likewise
            errors.seek(0)
            diagnostic = _DIAGNOSTIC.search(f"{error}\n{errors.read().decode(errors='replace')}")
            return {"stage": "lowering", "reason": diagnostic[1][:200] if diagnostic else first_line(error)}
    if _DYNAMIC.search(str(module)):
        return {"stage": "shape", "reason": "a shape that depends on data"}
    return None


def first_line(error: Exception) -> str:
    """The exception's type and the first line of its text."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line}"[:200]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    serve(lower)
