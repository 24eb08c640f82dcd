"""Pools of ranks, started once per session; the folder is on the path so that rank processes find their programs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ranks.world import World

SIZES = (2, 4)


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, World]]:
    opened: dict[int, World] = {}
    try:
        for size in SIZES:
            opened[size] = World(size, tmp_path_factory.mktemp("worlds"))
        yield opened
    finally:
        for world in opened.values():
            world.close()


@pytest.fixture(params=SIZES, ids=lambda size: f"{size}ranks")
def world(request: pytest.FixtureRequest, worlds: dict[int, World]) -> World:
    return worlds[request.param]


@pytest.fixture
def pair(worlds: dict[int, World]) -> World:
    return worlds[2]
