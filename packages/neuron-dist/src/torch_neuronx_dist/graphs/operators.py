"""Functional collectives in compiled graphs: how each becomes StableHLO."""

from collections.abc import Callable, Mapping
from typing import Any

from torch_neuronx.lowerings import Expansion

_FINGERPRINT = "1"


def _named(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace the name of a group, which is another one in each group of a mesh, by its replica groups."""
    from torch_neuronx_dist.graphs.replica_groups import encode, replica_groups

    return {"group_name": encode(replica_groups(arguments["group_name"]))}


def _even(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    sizes = {*arguments["input_split_sizes"], *arguments["output_split_sizes"]}
    if len(sizes) > 1:
        raise NotImplementedError(
            "its parts differ in size: how many rows a rank gives and gets is then another number on every rank, which "
            "one program for all ranks cannot say"
        )
    return _named(arguments)


def expansions() -> list[Expansion]:
    """Return every operator that is an operation of StableHLO."""
    return [
        _expansion("_c10d_functional::all_reduce", _named),
        _expansion("_c10d_functional::all_gather_into_tensor", _named),
        _expansion("_c10d_functional::reduce_scatter_tensor", _named),
        _expansion("_c10d_functional::all_to_all_single", _even),
        _expansion("_c10d_functional::broadcast", _named),
        _expansion("_dtensor::shard_dim_alltoall", _named),
        _expansion("_c10d_functional::wait_tensor", None, "same"),
        _expansion("_c10d_functional::_wrap_tensor_autograd", None, "same"),
    ]


def _expansion(
    op: str, rewrite: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None, build: str | None = None
) -> Expansion:
    name = build or op.rpartition("::")[2]
    return Expansion(f"{op}.default", f"torch_neuronx_dist.graphs.stablehlo:{name}", _FINGERPRINT, rewrite)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the collectives on lists of tensors as collectives on each."""
    import torch

    ops = torch.ops._c10d_functional

    def all_reduce_coalesced(inputs: list[torch.Tensor], reduce_op: str, group_name: str) -> list[torch.Tensor]:
        return [ops.all_reduce(tensor, reduce_op, group_name) for tensor in inputs]

    def all_gather_coalesced(inputs: list[torch.Tensor], group_size: int, group_name: str) -> list[torch.Tensor]:
        return [ops.all_gather_into_tensor(tensor, group_size, group_name) for tensor in inputs]

    def reduce_scatter_coalesced(
        inputs: list[torch.Tensor], reduce_op: str, group_size: int, group_name: str
    ) -> list[torch.Tensor]:
        return [ops.reduce_scatter_tensor(tensor, reduce_op, group_size, group_name) for tensor in inputs]

    return {
        ops.all_reduce_coalesced.default: all_reduce_coalesced,
        ops.all_gather_into_tensor_coalesced.default: all_gather_coalesced,
        ops.reduce_scatter_tensor_coalesced.default: reduce_scatter_coalesced,
    }
