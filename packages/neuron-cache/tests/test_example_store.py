"""The example of a store of one's own, built, installed where nothing else is, found, used, and gone again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="building the example needs hatchling: pip install hatchling")

EXAMPLE = Path(__file__).parents[1] / "examples" / "sqlite_store"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the example's wheel, installed by pip."""
    place = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, place / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", place / "site", place / "source"], check=True)
    return place


def run(installed: Path | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(installed / "site")] if installed else []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, *filter(None, sys.path)])}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def test_the_installed_example_is_found_by_its_scheme(installed: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from torch_neuronx_cache import Cache, CacheKey, open_store\n"
        "cache = Cache(open_store(sys.argv[1]))\n"
        "cache.get_or_create(CacheKey.of('neff', {'a': 1}), lambda: b'neff', {'graph': 'g'})\n"
    )
    url = f"sqlite://{tmp_path}/neff.db"
    assert run(installed, "-c", program, url).stderr == ""
    command = ["-c", "from torch_neuronx_cache.cli import main; main()", "ls", "--store", url, "--json"]
    (entry,) = json.loads(run(installed, *command).stdout)
    assert entry["graph"] == "g"
    without = run(None, *command)
    assert without.returncode == 2
    assert "No installed package offers a cache store for sqlite://" in without.stderr


def test_the_example_conforms(installed: Path) -> None:
    tests = installed / "source" / "tests"
    result = run(
        installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "--rootdir", str(tests), str(tests)
    )
    assert result.returncode == 0, result.stdout
