"""Pools of ranks, started once per session; the folder is on the path so that rank processes find their programs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ranks.world import World

SIZES = (2, 4)


@pytest.fixture(scope="session", autouse=True)
def runtime_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep core reservations apart from those of other runs on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield


class Worlds:
    """The pools of a session by number of ranks; one that broke is replaced."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._open: dict[int, World] = {}

    def of(self, size: int) -> World:
        if size in self._open and self._open[size].broken:
            self._open.pop(size).close()
        if size not in self._open:
            self._open[size] = World(size, self._factory.mktemp("world"))
        return self._open[size]

    def close(self) -> None:
        for world in self._open.values():
            world.close()


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    opened = Worlds(tmp_path_factory)
    yield opened
    opened.close()


@pytest.fixture(params=SIZES, ids=lambda size: f"{size}ranks")
def world(request: pytest.FixtureRequest, worlds: Worlds) -> World:
    return worlds.of(request.param)


@pytest.fixture
def pair(worlds: Worlds) -> World:
    return worlds.of(2)


@pytest.fixture
def four(worlds: Worlds) -> World:
    return worlds.of(4)
