"""Collectives: one rank by itself, and two ranks in processes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_neuronx_nki import NkiValidationError, trace
from torch_neuronx_nki import collectives as ncc
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit

RANKS = Path(__file__).parent / "collective_ranks.py"


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
}


@pytest.mark.parametrize("name", EVERY)
def test_a_rank_by_itself_has_its_own_data(name: str) -> None:
    with trace.collect() as events:
        got = alone(EVERY[name])
    assert torch.equal(got, torch.arange(8.0).reshape(2, 4))
    (met,) = (event for event in events if isinstance(event, trace.Instruction))
    assert met.cores == (0,)
    assert ncc.rank_id() == 0


REFUSED = {
    "replica-group": lambda x, out: ncc.all_reduce([x], [out], ncc.ReplicaGroup([[0, 0]]), nl.add),
    "operator": lambda x, out: ncc.all_reduce([x], [out], ncc.ReplicaGroup([[0]]), nl.multiply),
    "buffer": lambda x, out: ncc.all_reduce([nl.load(x)], [out], ncc.ReplicaGroup([[0]]), nl.add),
    "shape-match": lambda x, out: ncc.all_reduce([x[0:1, :]], [out], ncc.ReplicaGroup([[0]]), nl.add),
    "option": lambda x, out: ncc.all_gather([x], [out], ncc.ReplicaGroup([[0]]), 5),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_refused(rule: str) -> None:
    with pytest.raises(NkiValidationError) as caught:
        alone(REFUSED[rule])
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
