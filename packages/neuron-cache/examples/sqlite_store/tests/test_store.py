"""The promises of every store, kept by this one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from neuron_sqlite_store.store import SqliteStore

from torch_neuronx_cache.testing import StoreConformance


class TestSqliteStore(StoreConformance):
    """The suite, and nothing else."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], SqliteStore]:
        """Open one file again and again."""
        return lambda: SqliteStore(f"sqlite://{tmp_path}/store.db")
