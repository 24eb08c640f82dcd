"""Checkpoints of sharded models: saved on four ranks, loaded on two."""

from functools import partial
from pathlib import Path

import pytest
import torch
from ranks import parallelisms
from ranks.world import World


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_saved_on_four_and_loaded_on_two(four: World, pair: World, tmp_path: Path, asynchronous: bool) -> None:
    save = partial(parallelisms.save_checkpoint, asynchronous=asynchronous)
    saved = four.run(save, str(tmp_path / "checkpoint"))[0]
    for loaded in pair.run(parallelisms.load_checkpoint, str(tmp_path / "checkpoint")):
        for expected, found in zip(saved, loaded, strict=True):
            assert torch.equal(found, expected)
