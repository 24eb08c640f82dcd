"""One of two ranks of test_collectives.py: every collective against what it must give."""

import sys
import time
from typing import Any

import torch
import torch.distributed as dist

from torch_neuronx_nki import collectives as ncc
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit


def on_both(rank: int) -> list[torch.Tensor]:
    """Return both ranks' input, so that each can compute what is right."""
    del rank
    return [torch.arange(8.0).reshape(2, 4).to(torch.bfloat16) * (1 + 10 * other) for other in range(2)]


def collected(shape: tuple[int, ...], body: Any, x: torch.Tensor) -> torch.Tensor:
    """Run ``body(x, out)`` in a kernel."""

    @jit
    def kernel(given: Any) -> Any:
        out = nl.ndarray(shape, given.dtype, nl.shared_hbm)
        body(given, out)
        return out

    return kernel(x)


def _reduced_and_passed_on(x: Any, out: Any, group: ncc.ReplicaGroup) -> None:
    halves = ([x[0:1, :]], [x[1:2, :]])
    targets = ([out[0:1, :]], [out[1:2, :]])
    ncc.collective_permute_implicit_reduce(halves, halves, targets, group, nl.add, channel_ids=[0, 1])


def _check_all_to_all_v(rank: int, inputs: list[torch.Tensor], has_rdispls: bool) -> None:
    counts = torch.tensor([[1, 3], [2, 4]])  # of the sender, to the receiver
    begins = torch.tensor([[0, 2], [1, 4]])
    lands = torch.tensor([[4, 0], [5, 0]])  # at the receiver, from the sender
    metadata = torch.stack([counts[rank], begins[rank], torch.full((2,), 99), lands[rank]])
    metadata = metadata[: 4 if has_rdispls else 3].to(torch.uint32)

    @jit
    def kernel(x: Any, given: Any) -> Any:
        out = nl.zeros((2, 6), x.dtype, nl.shared_hbm)
        ncc.all_to_all_v([x], [out], ncc.ReplicaGroup([[0, 1]]), given, has_rdispls=has_rdispls)
        return out

    got = kernel(inputs[rank], metadata).flatten()
    want = torch.zeros(12, dtype=got.dtype)
    for sender in range(2):
        count, begin = counts[sender, rank], begins[sender, rank]
        place = lands[rank, sender] if has_rdispls else 6 * sender
        want[place : place + count] = inputs[sender].flatten()[begin : begin + count]
    assert torch.equal(got, want)
    assert metadata[2].tolist() == counts[:, rank].tolist()


def _check_all_gather_v(rank: int, inputs: list[torch.Tensor], has_rdispls: bool) -> None:
    counts, begins = (3, 5), (1, 2)
    rows = [[counts[rank], 0], [begins[rank], 0], [99, 99], [6, 0]]
    metadata = torch.tensor(rows[: 4 if has_rdispls else 3]).to(torch.uint32)

    @jit
    def kernel(x: Any, given: Any) -> Any:
        out = nl.zeros((2, 6), x.dtype, nl.shared_hbm)
        group = ncc.ReplicaGroup([[0, 1]])
        ncc.all_gather_v([x], [out], group, given, recv_counts_known=True, has_rdispls=has_rdispls)
        return out

    got = kernel(inputs[rank], metadata).flatten()
    want = torch.zeros(12, dtype=got.dtype)
    for sender, (count, begin) in enumerate(zip(counts, begins, strict=True)):
        place = (6, 0)[sender] if has_rdispls else 6 * sender
        want[place : place + count] = inputs[sender].flatten()[begin : begin + count]
    assert torch.equal(got, want)
    assert metadata[2].tolist() == [99, 99]


@jit
def gathered_late(x: Any, number: int) -> Any:
    """Gather ``x`` after a while that is another one on each rank."""
    time.sleep(0.02 * ((number + ncc.rank_id()) % 2))
    out = nl.ndarray((2 * x.shape[0], x.shape[1]), x.dtype, nl.shared_hbm)
    ncc.all_gather([x], [out], ncc.ReplicaGroup([[0, 1]]), 0)
    return out


def _check_one_graph(rank: int) -> None:
    """Kernels of one graph that do not depend on each other meet in one order, with other work between them."""

    def body(*inputs: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for number, x in enumerate(inputs):
            late = (x.sin() @ x.T @ x).cumsum(0) * 0
            found.append(
                gathered_late(torch.sort((x @ x.T) @ x, dim=0).values * 0 + x, number) + torch.cat([late, late])
            )
        return found

    function = torch.compile(body, backend="neuron", fullgraph=True)
    values = [[float(10 * other + number) for other in range(2)] for number in range(6)]
    inputs = [torch.full((64, 128), mine[rank]).to("neuron") for mine in values]
    for _ in range(5):
        for expected, result in zip(values, function(*inputs), strict=True):
            assert result.cpu()[[0, 64], 0].tolist() == expected


def main(store: str, rank: int) -> None:
    """Join the group and check."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    inputs = on_both(rank)
    mine, other = inputs[rank], inputs[1 - rank]
    pair, single = ncc.ReplicaGroup([[0, 1]]), ncc.ReplicaGroup([[0], [1]])
    assert ncc.rank_id() == rank

    got = collected((2, 4), lambda x, out: ncc.all_reduce([x], [out], pair, nl.add), mine)
    assert torch.equal(got, (mine.float() + other.float()).to(torch.bfloat16))
    got = collected((2, 4), lambda x, out: ncc.all_reduce([x], [out], single, nl.add), mine)
    assert torch.equal(got, mine)
    got = collected((2, 8), lambda x, out: ncc.all_gather([x], [out], pair, 1), mine)
    assert torch.equal(got, torch.cat(inputs, 1))
    got = collected((1, 4), lambda x, out: ncc.reduce_scatter([x], [out], pair, 0, nl.maximum), mine)
    assert torch.equal(got, torch.maximum(*inputs)[rank : rank + 1])
    got = collected((2, 4), lambda x, out: ncc.all_to_all([x], [out], pair, 0), mine)
    assert torch.equal(got, torch.cat([part[rank : rank + 1] for part in inputs]))
    got = collected((2, 4), lambda x, out: ncc.collective_permute([x], [out], [(0, 1), (1, 0)]), mine)
    assert torch.equal(got, other)
    got = collected((2, 4), lambda x, out: ncc.collective_permute_implicit([[x]], [[out]], pair), mine)
    assert torch.equal(got, other)
    got = collected((2, 4), lambda x, out: _reduced_and_passed_on(x, out, pair), mine)
    assert torch.equal(got, (other.float() * 2).to(torch.bfloat16))
    for has_rdispls in (False, True):
        _check_all_to_all_v(rank, inputs, has_rdispls)
        _check_all_gather_v(rank, inputs, has_rdispls)
    _check_one_graph(rank)
    assert ncc.collective_permute_implicit_current_processing_rank_id(1, pair) == 1 - rank
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
