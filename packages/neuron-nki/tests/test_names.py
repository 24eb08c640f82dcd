"""The table of names is current, and what an installed interpreter finds under the vendor's names."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from torch_neuronx_nki.rules import RULES

ROOT = Path(__file__).parents[3]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nki_names", ROOT / "tools" / "nki_names.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "nki_names.md").read_text(encoding="utf-8")
    assert page == generator().page(), "run: python tools/nki_names.py"


def test_rules_that_are_raised_are_listed() -> None:
    raised = {rule for rules in generator().rules().values() for rule in rules}
    assert raised <= set(RULES)


def run(program: str, *path: Path) -> str:
    places = [*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_nki_is_this_package_where_there_is_no_other() -> None:
    program = (
        "import sys; assert not [m for m in sys.modules if m.startswith(('torch', 'nki.'))]\n"
        "import nki, nki.isa as nisa, nki.language as nl, nki.typing as nt\n"
        "from nki.collectives import ReplicaGroup\n"
        "import torch_neuronx_nki.isa\n"
        "print(nki.jit.__module__, nisa is torch_neuronx_nki.isa, nki.language is nl, nt.tensor[2, 3])"
    )
    assert run(program) == "torch_neuronx_nki.jit True True nt.tensor[(2, 3)]"


def test_the_vendors_package_wins(tmp_path: Path) -> None:
    (tmp_path / "nki").mkdir()
    (tmp_path / "nki" / "__init__.py").write_text("whose = 'vendor'\n")
    program = (
        "import nki; print(nki.whose)\ntry:\n    import nki.isa\nexcept ModuleNotFoundError: print('no isa of ours')"
    )
    assert run(program, tmp_path) == "vendor\nno isa of ours"


@pytest.mark.parametrize("name", ["nki.no_such_module", "neuronxcc.other"])
def test_other_names_stay_unknown(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)
