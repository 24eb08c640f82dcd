"""Collectives: one rank by itself, and two ranks in processes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_neuronx_nki import NkiValidationError, trace
from torch_neuronx_nki import collectives as ncc
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit

RANKS = Path(__file__).parent / "collective_ranks.py"


def metadata(*rows: int, buffer: Any = nl.hbm) -> Any:
    """Make the metadata of one rank, one number in each row."""
    tile = nl.ndarray((1, len(rows), 1), nl.uint32)
    for position, value in enumerate(rows):
        nisa.memset(tile[:, position : position + 1, :], value)
    if buffer is nl.sbuf:
        return tile
    made = nl.ndarray((len(rows), 1), nl.uint32, buffer)
    nisa.dma_copy(made, tile[0, :, :])
    return made


def alone(body: Any) -> torch.Tensor:
    @jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        body(x, out)
        return out

    return kernel(torch.arange(8.0).reshape(2, 4))


EVERY = {
    "all_reduce": lambda x, out: ncc.all_reduce([x], [out], ncc.ReplicaGroup([[0]]), nl.add),
    "all_gather": lambda x, out: ncc.all_gather([x], [out], ncc.ReplicaGroup([[0]]), 0),
    "reduce_scatter": lambda x, out: ncc.reduce_scatter([x], [out], ncc.ReplicaGroup([[0]]), 1, nl.maximum),
    "all_to_all": lambda x, out: ncc.all_to_all([x], [out], ncc.ReplicaGroup([[0]]), 0),
    "collective_permute": lambda x, out: ncc.collective_permute([x], [out], [(0, 0)]),
    "collective_permute_implicit": lambda x, out: ncc.collective_permute_implicit(
        [[x]], [[out]], ncc.ReplicaGroup([[0]])
    ),
    "collective_permute_implicit_reduce": lambda x, out: ncc.collective_permute_implicit_reduce(
        [[x]], [[x]], [[out]], ncc.ReplicaGroup([[0]]), nl.maximum
    ),
    "all_gather_v": lambda x, out: ncc.all_gather_v([x], [out], ncc.ReplicaGroup([[0]]), metadata(8, 0, 0)),
    "all_to_all_v": lambda x, out: ncc.all_to_all_v(
        [x], [out], ncc.ReplicaGroup([[0]]), metadata(8, 0, 0, 0, buffer=nl.sbuf), has_rdispls=True
    ),
}


@pytest.mark.parametrize("name", EVERY)
def test_a_rank_by_itself_has_its_own_data(name: str) -> None:
    with trace.collect() as events:
        got = alone(EVERY[name])
    assert torch.equal(got, torch.arange(8.0).reshape(2, 4))
    met = [event for event in events if isinstance(event, trace.Instruction)][-1]
    assert met.cores == (0,)
    assert ncc.rank_id() == 0


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_pair_of_tiles_in_sbuf(name: str) -> None:
    def body(x: Any, out: Any) -> None:
        tile, result = nl.load(x), nl.ndarray(x.shape, x.dtype)
        EVERY[name](tile, result)
        nisa.dma_copy(out, result)

    assert torch.equal(alone(body), torch.arange(8.0).reshape(2, 4))


@pytest.mark.parametrize("known", [False, True])
def test_how_many_have_come_is_reported(known: bool) -> None:
    counts = []

    def body(x: Any, out: Any) -> None:
        nisa.dma_copy(out, x)
        made = metadata(3, 2, 9)
        ncc.all_to_all_v([x], [out], ncc.ReplicaGroup([[0]]), made, recv_counts_known=known)
        counts.append(made.to_torch().flatten().tolist())

    assert alone(body).flatten().tolist() == [2.0, 3.0, 4.0, *range(3, 8)]
    assert counts == [[3, 2, 9 if known else 3]]


ME = ncc.ReplicaGroup([[0]])
REFUSED = [
    ("replica-group", lambda x, out: ncc.all_reduce([x], [out], ncc.ReplicaGroup([[0, 0]]), nl.add)),
    ("replica-group", lambda x, out: ncc.all_reduce([x], [out], ncc.ReplicaGroup([[1]]), nl.add)),
    ("replica-group", lambda x, out: ncc.all_reduce([x], [out], ncc.ReplicaGroup(0), nl.add)),
    ("replica-group", lambda x, out: ncc.all_reduce([x], [out], [[0]], nl.add)),
    ("replica-group", lambda x, out: ncc.collective_permute([x], [out], [(0, 0), (0, 0)])),
    ("replica-group", lambda x, out: ncc.collective_permute([x], [out], [0, 1])),
    ("operator", lambda x, out: ncc.all_reduce([x], [out], ME, nl.multiply)),
    ("buffer", lambda x, out: ncc.all_reduce([nl.load(x)], [out], ME, nl.add)),
    ("buffer", lambda x, out: ncc.all_to_all([nl.load(x)], [nl.load(x)], ME, 0)),
    ("shape-match", lambda x, out: ncc.all_reduce([x[0:1, :]], [out], ME, nl.add)),
    ("shape-match", lambda x, out: ncc.all_reduce([x, x], [out], ME, nl.add)),
    ("option", lambda x, out: ncc.all_gather([x], [out], ME, 5)),
    ("generation", lambda x, out: ncc.all_gather([x], [out], ME, 0, priority=1)),
    ("shape-match", lambda x, out: ncc.all_to_all_v([x, x], [out, out], ME, metadata(8, 0, 0))),
    ("shape-match", lambda x, out: ncc.all_to_all_v([x], [out], ME, metadata(8, 0, 0), has_rdispls=True)),
    ("shape-match", lambda x, out: ncc.all_to_all_v([x], [out], ME, metadata(8, 0))),
    ("dtype", lambda x, out: ncc.all_to_all_v([x], [out], ME, metadata(8, 0, 0).view("int32"))),
    ("tensor-expected", lambda x, out: ncc.all_to_all_v([x], [out], ME, [[8], [0], [0]])),
    ("index-bounds", lambda x, out: ncc.all_to_all_v([x], [out], ME, metadata(8, 1, 0))),
    ("index-bounds", lambda x, out: ncc.all_gather_v([x], [out[0:1, :]], ME, metadata(8, 0, 0))),
    ("option", lambda x, out: ncc.collective_permute_implicit([[x]], [[out]], ME, channel_ids=[1])),
    ("shape-match", lambda x, out: ncc.collective_permute_implicit([[x]], [], ME)),
    (
        "shape-match",
        lambda x, out: ncc.collective_permute_implicit_reduce([[x]], [[x[0:1, :]]], [[out]], ME, nl.add),
    ),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused(number: int) -> None:
    rule, body = REFUSED[number]
    with pytest.raises(NkiValidationError) as caught:
        alone(body)
    assert caught.value.rule == rule


def test_two_ranks(tmp_path: Path) -> None:
    store = tmp_path / "store"
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANKS), str(store), str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=240)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(outputs)
