"""The operator table with what compiled graphs do, and the command that shows it."""

import json
import subprocess
import sys
from types import MappingProxyType

import pytest

from torch_neuronx.cli.operators import run
from torch_neuronx.ops.statuses import load_shipped_table
from torch_neuronx_compile import plugin
from torch_neuronx_compile.support import statuses
from torch_neuronx_compile.support.table import Support

ROWS = {
    "aten::add.Tensor": Support(None, None),
    "aten::nonzero": Support("it has no lowering", None),
    "aten::grid_sampler_2d": Support(None, "that has no lowering"),
    "aten::sort": Support(None, None),
}


def test_the_command_says_compiled_or_breaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(statuses, "shipped", lambda: MappingProxyType(ROWS))
    answers = {}
    for pattern in ("aten::add.Tensor", "aten::add_.Tensor", "aten::nonzero", "aten::grid_sampler_2d", "aten::sort"):
        assert run(pattern=pattern, status=None, compiled=True, as_json=True) == 0
        rows = {row["name"]: (row["compiled"], row["reason"]) for row in json.loads(capsys.readouterr().out)}
        answers[pattern] = rows[pattern]
    assert answers == {
        "aten::add.Tensor": ("compiled", ""),
        "aten::add_.Tensor": ("compiled", ""),
        "aten::nonzero": ("breaks", "it has no lowering"),
        "aten::grid_sampler_2d": ("breaks", "where its gradient is needed, and that has no lowering"),
        "aten::sort": ("breaks", "where the sorted dimension has more than 16384 elements"),
    }
    run(pattern="aten::mm", status=None, compiled=True, as_json=False)
    assert "unknown" in capsys.readouterr().out


def test_statuses_stay_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statuses, "shipped", lambda: MappingProxyType(ROWS))
    live = plugin.torch_neuronx_op_statuses()
    assert live is not None
    shipped = load_shipped_table()
    assert {name: (row.status, row.reason) for name, row in live.items()} == {
        name: (row.status, row.reason) for name, row in shipped.items()
    }


def test_without_rows_for_this_installation_there_is_no_live_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statuses, "shipped", dict)
    assert plugin.torch_neuronx_op_statuses() is None


def test_the_table_needs_no_torch() -> None:
    script = "import sys\nfrom torch_neuronx_compile import plugin\nplugin.torch_neuronx_op_statuses()\n"
    script += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
