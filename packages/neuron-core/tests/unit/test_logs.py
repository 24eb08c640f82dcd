"""Logging: the level is applied on first use, and a program's own logging wins."""

import subprocess
import sys

import pytest

SPEAK = """
from torch_neuronx import logs
log = logs.logger("compile")
log.warning("a warning"); log.info("information"); log.log(logs.DETAIL, "a detail"); log.debug("debugging")
"""


def run(program: str, level: str | None = None) -> str:
    environ = {"PATH": "/usr/bin"} | ({} if level is None else {"TORCH_NEURONX_LOG_LEVEL": level})
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}"]
    return subprocess.run(command, env=environ, check=False, capture_output=True, text=True, timeout=60).stderr


@pytest.mark.parametrize(
    ("level", "spoken"),
    [
        (None, ["a warning"]),
        ("0", ["a warning"]),
        ("1", ["a warning", "information"]),
        ("2", ["a warning", "information", "a detail"]),
        ("3", ["a warning", "information", "a detail", "debugging"]),
    ],
)
def test_levels(level: str | None, spoken: list[str]) -> None:
    lines = run(SPEAK, level).splitlines()
    assert len(lines) == len(spoken)
    assert all(line.endswith(words) for line, words in zip(lines, spoken, strict=True))


def test_the_programs_own_logging_receives_each_record_once() -> None:
    configured = "import logging; logging.basicConfig(format='mine: %(message)s')\n" + SPEAK
    assert run(configured, "1").splitlines() == ["mine: a warning", "mine: information"]


def test_import_touches_no_logger() -> None:
    program = "import logging, torch_neuronx.logs; print(logging.root.manager.loggerDict, file=sys.stderr)"
    assert "torch_neuronx" not in run(program, "3")


def test_a_wrong_level_names_the_variable() -> None:
    assert "ConfigurationError: The environment variable TORCH_NEURONX_LOG_LEVEL is set to 'loud'" in run(SPEAK, "loud")
