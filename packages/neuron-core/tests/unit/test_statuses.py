"""The shipped table of op statuses, and the live one that takes its place."""

import subprocess
import sys
from collections import Counter

import pytest
import torch

from torch_neuronx import plugins
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.op_status import OpRecord, OpStatus
from torch_neuronx.ops.statuses import current_table, load_shipped_table, shipped_metadata


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("aten::eye", OpStatus.NATIVE),
        ("aten::mm", OpStatus.NATIVE),
        ("aten::sort", OpStatus.NATIVE),
        ("aten::sort.stable", OpStatus.NATIVE),
        ("aten::topk", OpStatus.NATIVE),
        ("aten::native_layer_norm", OpStatus.NATIVE),
        ("aten::convolution_backward_overrideable", OpStatus.NATIVE),
        ("aten::complex", OpStatus.FALLBACK),
        ("aten::nonzero", OpStatus.FALLBACK),
        ("aten::linalg_lu", OpStatus.FALLBACK),
        ("aten::multinomial", OpStatus.FALLBACK),
        ("aten::quantize_per_tensor", OpStatus.UNSUPPORTED),
        ("aten::_empty_affine_quantized", OpStatus.UNSUPPORTED),
        ("aten::_to_sparse", OpStatus.FALLBACK),
        ("aten::to_mkldnn", OpStatus.UNSUPPORTED),
        ("aten::_nested_tensor_from_mask", OpStatus.UNSUPPORTED),
    ],
)
def test_rows_that_the_documentation_promises(name: str, status: OpStatus) -> None:
    assert load_shipped_table()[name].status is status


@pytest.mark.parametrize(
    ("functional", "variants"),
    [
        (
            "aten::add.Tensor",
            ("aten::add_.Tensor", "aten::add.out", "aten::_foreach_add.List", "aten::_foreach_add_.List"),
        ),
        ("aten::erfc", ("aten::erfc_", "aten::erfc.out", "aten::_foreach_erfc", "aten::_foreach_erfc_")),
        ("aten::index_put", ("aten::index_put_", "aten::index_put.out")),
        ("aten::complex", ("aten::complex.out",)),
        ("aten::_to_sparse", ("aten::_to_sparse.out",)),
    ],
)
def test_variants_share_the_status_of_their_functional_form(functional: str, variants: tuple[str, ...]) -> None:
    table = load_shipped_table()
    assert {table[name].status for name in variants} == {table[functional].status}


OTHER_TORCH = pytest.mark.skipif(
    str(shipped_metadata()["torch"]).split(".")[:2] != torch.__version__.split(".")[:2],
    reason="the table was made with another torch",
)


@OTHER_TORCH
def test_every_row_names_an_operator_of_this_torch_and_gives_a_reason() -> None:
    table = load_shipped_table()
    assert set(table) <= set(torch._C._dispatch_get_all_op_names())
    assert [name for name, record in table.items() if not record.reason] == []


@OTHER_TORCH
def test_every_kernel_for_the_cpu_has_a_row() -> None:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::") and has(name, "CPU")]
    missing = [name for name in names if name not in load_shipped_table()]
    assert [name for name in missing if not name.startswith(("aten::_test_", "aten::_foobar"))] == []


def test_the_table_says_what_it_was_made_from() -> None:
    metadata = shipped_metadata()
    assert str(metadata["torch"]).startswith("2.13")
    assert metadata["command"] == "python -m tools.op_statuses"
    assert Counter(record.status for record in load_shipped_table().values())[OpStatus.NATIVE] > metadata["lowered"]


def test_the_shipped_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        load_shipped_table()["aten::mine"] = OpRecord(OpStatus.NATIVE)  # type: ignore[index]


class LiveTable:
    """A plugin with a table of its own."""

    @hookimpl
    def torch_neuronx_op_statuses(self) -> dict[str, OpRecord]:
        return {"aten::erfc": OpRecord(OpStatus.NATIVE, "lowers here")}


def test_a_plugin_puts_a_live_table_in_place_of_the_shipped_one() -> None:
    before = current_table()
    plugins.manager().register(LiveTable(), "live-table")
    try:
        assert dict(current_table()) == {"aten::erfc": OpRecord(OpStatus.NATIVE, "lowers here")}
    finally:
        plugins.manager().unregister("live-table")
    assert current_table() == before
    assert {name: record.status for name, record in before.items()} == {
        name: record.status for name, record in load_shipped_table().items()
    }


def test_the_table_loads_without_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from torch_neuronx.ops.statuses import load_shipped_table\n"
        "print(len(load_shipped_table()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) == len(load_shipped_table())
