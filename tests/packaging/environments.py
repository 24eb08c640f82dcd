"""A virtual environment, driven from outside."""

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path


def clean_environment() -> dict[str, str]:
    """This process's variables without those that would let an environment see another one, or change the device."""
    prefixes = ("PYTHON", "TORCH", "NEURON", "VIRTUAL_ENV", "TOX", "COV")
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


@dataclass(frozen=True)
class Environment:
    """A virtual environment and the programs in it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        path = sysconfig.get_path("purelib", vars={"base": str(self.folder), "platbase": str(self.folder)})
        return Path(path)

    def run(
        self, *command: str, check: bool = True, **variables: str | os.PathLike[str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; a failure shows what it printed."""
        environment = {**clean_environment(), **{name: str(value) for name, value in variables.items()}}
        program = str(self.folder / "bin" / command[0])
        result = subprocess.run(
            [program, *command[1:]],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert not check or result.returncode == 0, f"{command} failed:\n{result.stdout}\n{result.stderr}"
        return result

    def pip(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("python", "-m", "pip", *arguments)


def run_here(*command: str, cwd: Path | None = None, **variables: str) -> str:
    """Run this interpreter with this process's variables; a failure shows what it printed."""
    result = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **variables},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert result.returncode == 0, f"{command} failed:\n{result.stdout}\n{result.stderr}"
    return result.stdout
