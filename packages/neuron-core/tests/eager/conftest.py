"""Shared by the tests of eager mode."""

import os

import pytest


@pytest.fixture
def subprocess_environment() -> dict[str, str]:
    """The environment for a child whose own switches a test sets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_NEURONX_", "NEURON_"))}
