"""Build a distribution's C++ in place: `python -m torch_neuronx.build packages/neuron-core`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import BuildError
from .project import load_project
from .steps import build, install_in_place, write_compile_commands


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile and install in place; returns 1 after printing what went wrong in one sentence."""
    parser = argparse.ArgumentParser(prog="python -m torch_neuronx.build", description=__doc__)
    parser.add_argument("project", type=Path, nargs="?", default=Path(), help="folder with the pyproject.toml")
    options = parser.parse_args(arguments)
    try:
        built = build(load_project(options.project))
        written = install_in_place(built)
        write_compile_commands(built)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
