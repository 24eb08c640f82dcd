"""`import torch` survives whatever is wrong with the installation, and the device says what it is."""

import shutil
from collections.abc import Callable
from pathlib import Path

import programs
import pytest
from environments import Environment

# torch itself warns where NumPy is absent, which neither it nor the core requires.
STRICT = ("-W", "error", "-W", "ignore:Failed to initialize NumPy:UserWarning")


def break_extension(package: Path) -> None:
    (extension,) = package.glob("_C.*.so")
    extension.write_bytes(b"not a shared object")


def remove_extension(package: Path) -> None:
    (extension,) = package.glob("_C.*.so")
    extension.unlink()


def break_library(package: Path) -> None:
    (package / "lib" / "libtorch_neuronx.so").write_bytes(b"not a shared object")


def name_another_torch(package: Path) -> None:
    info = package / "_build_info.py"
    lines = info.read_text(encoding="utf-8").splitlines()
    changed = ["TORCH_VERSION = '2.12.0'" if line.startswith("TORCH_VERSION") else line for line in lines]
    info.write_text("\n".join(changed), encoding="utf-8")


def remove_build_facts(package: Path) -> None:
    (package / "_build_info.py").unlink()


@pytest.fixture
def copied_package(alone: Environment, tmp_path: Path) -> Path:
    """A copy of the installed package that shadows it when its folder is put on PYTHONPATH."""
    copy = tmp_path / "overlay" / "torch_neuronx"
    shutil.copytree(alone.site_packages / "torch_neuronx", copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (break_extension, "cannot be loaded"),
        (remove_extension, "cannot be loaded"),
        (break_library, "cannot be loaded"),
        (name_another_torch, "was built for torch 2.12, but torch 2.13"),
        (remove_build_facts, "is missing"),
    ],
)
def test_import_torch_survives_and_first_use_tells_the_cause(
    alone: Environment, copied_package: Path, damage: Callable[[Path], None], cause: str
) -> None:
    damage(copied_package)
    overlay = copied_package.parent
    imported = alone.run("python", *STRICT, "-c", "import torch; print(torch.ones(1).item())", PYTHONPATH=overlay)
    assert imported.stdout.strip() == "1.0"
    assert imported.stderr == ""
    assert cause in alone.run("python", "-c", programs.FIRST_USE, PYTHONPATH=overlay).stdout
    doctor = alone.run("torch-neuronx", "doctor", check=False, PYTHONPATH=overlay)
    assert doctor.returncode != 0
    assert cause in " ".join(doctor.stdout.split())


def test_import_torch_survives_a_plugin_that_raises(alone: Environment, tmp_path: Path) -> None:
    (tmp_path / "stormy.py").write_text("raise OSError('no licence for stormy')\n", encoding="utf-8")
    info = tmp_path / "stormy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stormy\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[torch_neuronx.plugins]\nstormy = stormy\n", encoding="utf-8")
    imported = alone.run("python", *STRICT, "-c", "import torch; print(torch.__name__)", PYTHONPATH=tmp_path)
    assert imported.stdout.strip() == "torch"
    used = alone.run("python", "-c", programs.EAGER, PYTHONPATH=tmp_path)
    assert used.stdout.strip() == "[[5.0, 14.0], [14.0, 50.0]]"
    listed = alone.run("torch-neuronx", "plugins", "--json", PYTHONPATH=tmp_path).stdout
    assert "no licence for stormy" in listed


def test_autoload_can_be_turned_off(alone: Environment) -> None:
    program = "import sys, torch; print('torch_neuronx' in sys.modules, hasattr(torch, 'neuron'))"
    result = alone.run("python", "-c", program, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.stdout.strip() == "False False"
