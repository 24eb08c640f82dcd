"""Checkpoints of sharded models: saved on four ranks, loaded on two."""

from pathlib import Path

import torch
from ranks import parallelisms
from ranks.world import World


def test_saved_on_four_and_loaded_on_two(four: World, pair: World, tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("at_once", "in_the_background")]
    saved = four.run(parallelisms.save_checkpoints, *folders)[0]
    for folder in folders:
        for loaded in pair.run(parallelisms.load_checkpoint, folder):
            for expected, found in zip(saved, loaded, strict=True):
                assert torch.equal(found, expected)
