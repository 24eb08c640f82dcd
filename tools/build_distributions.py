"""Builds the wheels and source distributions of all packages into one folder.

    python tools/build_distributions.py --output dist
    python tools/build_distributions.py --output dist --from-sdist   # each wheel from its unpacked sdist: for a release
    python tools/build_distributions.py --output dist --torch 2.14   # for another torch than the sources name

Runs in an environment that has torch, hatchling and ninja, and builds against that torch. The core comes first; what
links against it is built with its wheel at hand.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = "neuron-core"
FOLDERS = (CORE, "neuron-compile", "neuron-dist", "neuron-nki", "neuron-cache")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build what the command line asks for; stops at the first package that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for wheels and source distributions")
    parser.add_argument("--only", nargs="+", choices=FOLDERS, default=FOLDERS, help="folders under packages/")
    parser.add_argument("--from-sdist", action="store_true", help="compile what the source distribution carries")
    parser.add_argument("--torch", metavar="MAJOR.MINOR", help="name this torch in place of the one in pyproject.toml")
    options = parser.parse_args(arguments)
    output: Path = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = Path(scratch_name)
        environment = dict(os.environ)
        for folder in [name for name in FOLDERS if name in options.only]:
            project = ROOT / "packages" / folder
            if options.torch:
                project = retarget(project, scratch / folder, options.torch)
            wheel = build(project, output, scratch, environment, from_sdist=options.from_sdist)
            if folder == CORE:
                # At one place, and only what changed is written: what links against it is not compiled again in vain.
                overlay = output / ".core"
                unpack(wheel, overlay)
                paths = [str(overlay), *filter(None, [environment.get("PYTHONPATH")])]
                environment["PYTHONPATH"] = os.pathsep.join(paths)


def build(project: Path, output: Path, scratch: Path, environment: dict[str, str], *, from_sdist: bool) -> Path:
    """Build one package into `output`, in place of its earlier builds there; returns the wheel."""
    name = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    stem = name.replace("-", "_")
    for old in [*output.glob(f"{stem}-[0-9]*.whl"), *output.glob(f"{stem}-[0-9]*.tar.gz")]:
        old.unlink()
    hatchling(project, "sdist", output, environment)
    if from_sdist:
        (sdist,) = output.glob(f"{stem}-[0-9]*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch / "sdist", filter="data")
        project = scratch / "sdist" / sdist.name.removesuffix(".tar.gz")
    hatchling(project, "wheel", output, environment)
    (wheel,) = output.glob(f"{stem}-[0-9]*.whl")
    return wheel


def hatchling(project: Path, target: str, output: Path, environment: dict[str, str]) -> None:
    """Run the build back end itself: the environment is ready, and a front end would only make another one."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(output)]
    result = subprocess.run(command, cwd=project, env=environment, check=False)
    if result.returncode != 0:
        raise SystemExit(f"error: the {target} of {project.name} was not built (see above).")


def unpack(wheel: Path, folder: Path) -> None:
    """Make `folder` hold the wheel's files, leaving equal ones untouched, so that it can be put on PYTHONPATH."""
    with zipfile.ZipFile(wheel) as archive:
        content = {folder / name: archive.read(name) for name in archive.namelist()}
    for path in folder.rglob("*"):
        if path.is_file() and path not in content:
            path.unlink()
    for path, data in content.items():
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def retarget(project: Path, copy: Path, torch: str) -> Path:
    """Copy a package with its version and requirements naming another torch release: 2.13.0.1 becomes 2.14.0.1."""
    major, minor = map(int, torch.split("."))
    shutil.copytree(project, copy, ignore=lambda folder, _: ["build"] if Path(folder) == project else [])
    path = copy / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    text = re.sub(r'(?m)^version = "2\.\d+\.', f'version = "{torch}.', text) if project.name == CORE else text
    text = re.sub(r'"torch>=[\d.]+,<[\d.]+"', f'"torch>={torch},<{major}.{minor + 1}"', text)
    text = re.sub(r'"torch-neuronx==[\d.]+\.\*"', f'"torch-neuronx=={torch}.*"', text)
    path.write_text(text, encoding="utf-8")
    return copy


if __name__ == "__main__":
    main()
