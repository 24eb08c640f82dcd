"""One of two ranks of test_collectives.py: every collective against what it must give."""

import sys
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
    assert ncc.collective_permute_implicit_current_processing_rank_id(1, pair) == 1 - rank
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
