"""Environments of their own, into which the built distributions are installed as a user would."""

import os
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from environments import Environment

ROOT = Path(__file__).resolve().parents[2]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--distributions",
        type=Path,
        default=ROOT / "dist",
        help="folder written by tools/build_distributions.py (default: dist)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share something costly in one process, so that it is made once."""
    for item in items:
        for costly in ("complete", "alone", "project"):
            if isinstance(item, pytest.Function) and costly in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group(costly))


@pytest.fixture(scope="session")
def distributions(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.config.getoption("--distributions").resolve()
    assert list(folder.glob("torch_neuronx-*.whl")), f"no wheels in {folder}: run tools/build_distributions.py first"
    return folder


@pytest.fixture(scope="session")
def new_environment(
    distributions: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str, str], Environment]:
    def create(name: str, distribution: str, extras: str = "") -> Environment:
        """Make an environment with one distribution (and extras) from the folder; the index has what is not ours."""
        environment = Environment(tmp_path_factory.mktemp("environments") / name)
        venv.create(environment.folder, with_pip=True)
        (wheel,) = distributions.glob(f"{distribution}-[0-9]*.whl")
        links = " ".join(filter(None, [os.environ.get("PIP_FIND_LINKS"), str(distributions)]))
        # Byte code for all of torch takes longer to make than what these environments are used for.
        install = ("python", "-m", "pip", "install", "--quiet", "--no-compile")
        environment.run(*install, f"{wheel}{extras}", PIP_FIND_LINKS=links)
        return environment

    return create


@pytest.fixture(scope="session")
def complete(new_environment: Callable[..., Environment]) -> Environment:
    """`pip install 'torch-neuronx[compile,dist]'`."""
    return new_environment("complete", "torch_neuronx", "[compile,dist]")


@pytest.fixture(scope="session")
def alone(new_environment: Callable[..., Environment]) -> Environment:
    """`pip install torch-neuronx`."""
    return new_environment("alone", "torch_neuronx")


@pytest.fixture(scope="session")
def cache_alone(new_environment: Callable[..., Environment]) -> Environment:
    """`pip install torch-neuronx-cache`."""
    return new_environment("cache", "torch_neuronx_cache")


@pytest.fixture(scope="session")
def here() -> Environment:
    """The environment of this test run, which has the core, torch and the build tools."""
    return Environment(Path(sys.prefix))
