"""Targets, and the cores that a process sees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_neuronx.errors import ConfigurationError
from torch_neuronx.targets import GIB, MIB, TRN2, TRN3, CoreLayout, DtypeSupport, Target, core_layout, lay_out_cores


def indices(layout: CoreLayout) -> list[int]:
    return [core.index for core in layout.logical_cores]


def test_default_is_one_trn2_chip_at_lnc_2() -> None:
    layout = core_layout({})
    assert layout.target is TRN2
    assert layout.lnc == 2
    assert [core.physical for core in layout.logical_cores] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert layout.hbm_bytes_per_core == 24 * GIB


def test_lnc_1_has_twice_the_cores_and_half_the_memory() -> None:
    layout = core_layout({"NEURON_LOGICAL_NC_CONFIG": "1"})
    assert [core.physical for core in layout.logical_cores] == [(i,) for i in range(8)]
    assert layout.hbm_bytes_per_core == 12 * GIB


def test_trn3() -> None:
    layout = core_layout({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"})
    assert layout.target is TRN3
    assert len(layout.logical_cores) == 4
    assert layout.hbm_bytes_per_core == 36 * GIB
    assert layout.target.sbuf == 32 * MIB


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"NEURON_RT_NUM_CORES": "0"}, [0, 1, 2, 3]),
        ({"NEURON_RT_NUM_CORES": "2"}, [0, 1]),
        ({"NEURON_RT_VISIBLE_CORES": "3"}, [3]),
        ({"NEURON_RT_VISIBLE_CORES": "2,0"}, [2, 0]),
        ({"NEURON_RT_VISIBLE_CORES": "1-3", "NEURON_RT_NUM_CORES": "1"}, [1, 2, 3]),
        ({"NEURON_RT_VISIBLE_CORES": "1-3", "NEURON_RT_NUM_CORES": "99"}, [1, 2, 3]),
        ({"NEURON_RT_VISIBLE_CORES": "7", "NEURON_LOGICAL_NC_CONFIG": "1"}, [7]),
    ],
)
def test_visible_cores(environ: dict[str, str], expected: list[int]) -> None:
    layout = core_layout(environ)
    assert indices(layout) == expected
    assert layout.hbm_bytes_per_core == TRN2.hbm_per_chip // (TRN2.cores_per_chip // layout.lnc)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"NEURON_RT_VISIBLE_CORES": "4"}, "core 4, but a trn2 chip has 4 logical cores at LNC 2. Use cores 0 to 3"),
        ({"NEURON_RT_NUM_CORES": "5"}, "asks for 5 cores, but a trn2 chip has 4 logical cores at LNC 2"),
        ({"NEURON_LOGICAL_NC_CONFIG": "4"}, "NEURON_LOGICAL_NC_CONFIG"),
        ({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn9"}, "no target 'trn9'.*one of: trn2, trn3"),
        ({"NEURON_RT_VISIBLE_CORES": "0,0"}, "NEURON_RT_VISIBLE_CORES"),
    ],
)
def test_cores_that_are_not_there(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        core_layout(environ)


@given(st.sets(st.integers(0, 7), min_size=1), st.sampled_from([TRN2, TRN3]), st.sampled_from([1, 2]))
def test_a_layout_shows_what_was_asked_for_or_raises(cores: set[int], chosen: Target, lnc: int) -> None:
    environ = {"NEURON_RT_VISIBLE_CORES": ",".join(map(str, cores)), "NEURON_LOGICAL_NC_CONFIG": str(lnc)}
    if max(cores) >= 8 // lnc:
        with pytest.raises(ConfigurationError):
            lay_out_cores(chosen, environ)
        return
    layout = lay_out_cores(chosen, environ)
    assert set(indices(layout)) == cores
    physical = [number for core in layout.logical_cores for number in core.physical]
    assert len(set(physical)) == len(physical) == len(cores) * lnc
    assert all(number < chosen.cores_per_chip for number in physical)


@pytest.mark.parametrize(
    ("dtype", "trn2", "trn3"),
    [
        ("bfloat16", "native", "native"),
        ("float64", "narrowed", "narrowed"),
        ("int64", "narrowed", "narrowed"),
        ("complex64", "unsupported", "unsupported"),
        ("quint8", "unsupported", "unsupported"),
        ("float8_e4m3fn", "unsupported", "native"),
        ("float8_e4m3fnuz", "unsupported", "unsupported"),
        ("float8_e5m2", "native", "native"),
        ("no_such_dtype", "unsupported", "unsupported"),
    ],
)
def test_dtype_support(dtype: str, trn2: str, trn3: str) -> None:
    assert TRN2.dtype_support(dtype) == trn2
    assert TRN3.dtype_support(dtype) == trn3


def test_narrowed_dtypes_are_computed_in_native_ones() -> None:
    for target in (TRN2, TRN3):
        for wide, narrow in target.narrowed_dtypes:
            assert target.dtype_support(wide) is DtypeSupport.NARROWED
            assert target.computed_in(wide) == narrow
            assert narrow in target.native_dtypes
        assert target.computed_in("float32") == "float32"
