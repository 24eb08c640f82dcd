"""The doors to the compile extra's explanations, where the extra is absent."""

import subprocess
import sys
from pathlib import Path

import pytest

import torch_neuronx
from torch_neuronx.errors import MissingExtraError

WITHOUT = """
import sys

sys.modules["torch"] = sys.modules["torch_neuronx_compile"] = None
from torch_neuronx.cli import main

main()
"""


def test_the_function_says_how_to_install_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_neuronx_compile", None)
    with pytest.raises(MissingExtraError, match=r"torch_neuronx\.explain.*torch-neuronx\[compile\]"):
        torch_neuronx.explain(len, [])


@pytest.mark.parametrize(
    ("name", "code", "says"), [("there.py", 1, "torch-neuronx[compile]"), ("none.py", 2, "none.py")]
)
def test_the_command_says_what_is_missing(tmp_path: Path, name: str, code: int, says: str) -> None:
    (tmp_path / "there.py").write_text("raise SystemExit(3)")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT, "explain", str(tmp_path / name)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
