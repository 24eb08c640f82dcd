"""How kernels are called: devices, arguments, results, cores, shapes only, records."""

import math
import threading
from typing import Any

import numpy as np
import pytest
import torch
from nki_harness import NUMPY, data
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_neuronx_nki import NkiLaunchError, NkiValidationError, nki_op, trace
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import Kernel, jit, simulate


@jit
def double(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize("device", ["cpu", "neuron"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.uint8, torch.float8_e5m2]
)
def test_results_are_where_the_arguments_are(device: str, dtype: torch.dtype) -> None:
    x = torch.arange(24).reshape(4, 6).to(dtype).to(device)
    got = double(x)
    assert (got.device, got.dtype, got.shape) == (x.device, x.dtype, x.shape)
    assert torch.equal(got.cpu().float(), x.cpu().float() * 2)


def test_numpy_in_numpy_out() -> None:
    x = data((4, 6), "bfloat16", 1)
    got = double(x)
    assert got.dtype == NUMPY["bfloat16"]
    assert np.array_equal(got, x * 2)


@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_arguments_are_written_in_place(device: str) -> None:
    @jit
    def update(cache: Any, new: Any, row: int) -> Any:
        nisa.dma_copy(cache[row, :], new[0, :])
        return cache

    cache, new = torch.zeros(5, 4, device=device), torch.ones(1, 4, device=device)
    got = update(cache, new, row=2)
    assert got is cache
    assert cache.sum(1).tolist() == [0, 0, 4, 0, 0]


def test_parameters_and_views_of_tensors_are_used_in_place() -> None:
    @jit
    def fill(x: Any) -> None:
        nisa.dma_copy(x, nl.full((1, 3), 5.0, nl.float32))

    base = torch.nn.Parameter(torch.zeros(4, 6))
    fill(base[1:2, 1:6:2])
    assert base.sum().item() == 15
    assert base[1, 1:6:2].tolist() == [5, 5, 5]


def test_access_patterns_want_adjacent_elements() -> None:
    @jit
    def corner(x: Any) -> Any:
        out = nl.ndarray((2, 2), x.dtype, nl.shared_hbm)
        nisa.dma_copy(out, x.ap([[4, 2], [1, 2]]))
        return out

    x = torch.arange(12.0).reshape(3, 4)
    assert corner(x).tolist() == [[0, 1], [4, 5]]
    with pytest.raises(NkiValidationError, match="slice of a tensor") as caught:
        corner(torch.arange(24.0).reshape(3, 8)[:, ::2])
    assert caught.value.rule == "view"


def test_structures_of_arguments_and_results() -> None:
    @jit
    def kernel(pair: Any, options: dict[str, Any], *, name: str = "x") -> Any:
        first, second = pair
        assert name == "y"
        out = nl.ndarray(first.shape, first.dtype, nl.shared_hbm)
        tile = nl.load(first)
        nisa.tensor_tensor(tile, tile, nl.load(second), options["op"])
        nl.store(out, tile)
        return {"sum": out, "first": first, "count": 2}

    a, b = torch.ones(2, 3), torch.ones(2, 3)
    got = kernel((a, b), {"op": nl.add}, name="y")
    assert torch.equal(got["sum"], a + b)
    assert got["first"] is a
    assert got["count"] == 2


def test_kernels_call_kernels() -> None:
    @jit
    def outer(x: Any) -> Any:
        return double(double(x))

    x = torch.ones(2, 2)
    assert torch.equal(outer(x), x * 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex64])
def test_64_bits_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(NkiValidationError) as caught:
        double(torch.ones(2, 2, dtype=dtype))
    assert caught.value.rule == "argument-dtype"


def test_results_in_sbuf_are_refused() -> None:
    with pytest.raises(NkiValidationError, match="returns a tensor in sbuf") as caught:
        simulate(jit(lambda x: nl.load(x)))(torch.ones(2, 2))
    assert caught.value.rule == "output-buffer"


def test_float8_is_the_chips_own_before_gen4() -> None:
    @jit
    def names(x: Any) -> str:
        return str(x.dtype)

    x = torch.ones(2, 2).to(torch.float8_e4m3fn)
    assert simulate(names, target="trn2")(x) == "float8_e4m3"
    assert simulate(names, target="trn3")(x) == "float8_e4m3fn"
    assert simulate(double, target="trn2")(x).dtype == torch.float8_e4m3fn


def test_fresh_memory_is_poisoned() -> None:
    @jit
    def forgets(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nisa.dma_copy(out, nl.ndarray(x.shape, x.dtype))
        return out

    forgets = simulate(forgets, verify="off")
    assert forgets(torch.ones(2, 2)).isnan().all()
    assert forgets(torch.ones(2, 2).to(torch.float8_e4m3fn)).float().isnan().all()
    assert forgets(torch.ones(2, 2, dtype=torch.int32)).unique().tolist() == [0x5A5A5A5A]
    simulate(forgets, poison=False)(torch.ones(2, 2))


@pytest.mark.parametrize("columns", [64, 60])
def test_what_is_written_in_part_is_poisoned_elsewhere(columns: int) -> None:
    @jit
    def forgets(x: Any) -> Any:
        out = nl.ndarray((3, *x.shape), x.dtype, nl.shared_hbm)
        for turn, written in enumerate((8, 24, 0)):
            tile = nl.ndarray(x.shape, x.dtype)  # over the bytes of the one before
            for first in range(0, written, 8):
                nisa.dma_copy(tile[:, nl.ds(first, 8)], x[:, nl.ds(first, 8)])
            nisa.dma_copy(out[turn], tile)
        return out

    x = torch.arange(4.0 * columns).reshape(4, columns)
    for given, is_fresh in ((x, torch.isnan), (x.int(), lambda y: y == 0x5A5A5A5A), (x.half(), torch.isnan)):
        got = simulate(forgets, verify="off")(given)
        for turn, written in enumerate((8, 24, 0)):
            assert torch.equal(got[turn, :, :written], given[:, :written])
            assert is_fresh(got[turn, :, written:]).all()


# Cores ----------------------------------------------------------------------------------------------------------------


@jit
def halves(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs(0)
    mine = nl.ds(nl.program_id(0) * rows, rows)
    tile = nl.load(x[mine, :])
    nisa.tensor_scalar(tile, tile, nl.add, float(nl.program_id(0) + 10 * nl.program_ndim()))
    nl.store(out[mine, :], tile)
    return out


@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_two_cores_share_their_results(device: str) -> None:
    x = torch.zeros(8, 2, device=device)
    assert halves(x).sum().item() == 0
    for launched in (halves[2], simulate(halves[2]), simulate(halves)[2], halves[(2,)]):
        assert launched(x).cpu()[:, 0].tolist() == [10.0] * 4 + [11.0] * 4


def test_cores_exchange_and_wait() -> None:
    @jit
    def exchange(x: Any) -> Any:
        out = nl.ndarray((2, 3, 2), nl.float32, nl.shared_hbm)
        scratch = nl.ndarray((2, 2), nl.float32, nl.shared_hbm)
        me = nl.program_id(0)
        for step in range(3):
            mine, theirs = nl.full((1, 2), me * 10.0 + step, nl.float32), nl.ndarray((1, 2), nl.float32)
            nisa.sendrecv(mine, theirs, 1 - me, 1 - me, pipe_id=0)
            nisa.dma_copy(scratch[me, :], theirs)
            nisa.core_barrier(scratch, (0, 1))
            nisa.dma_copy(out[me, step, :], scratch[1 - me, :])
            nisa.core_barrier(scratch, (0, 1))
        return out

    for _ in range(3):
        got = exchange[2](torch.zeros(1, 1))
        # a core reads what the other one received, which is what it sent itself
        assert got[0, :, 0].tolist() == [0, 1, 2]
        assert got[1, :, 0].tolist() == [10, 11, 12]


def test_engines_have_names_of_their_own() -> None:
    assert nisa.tensor_engine is nisa.engine.tensor
    assert nisa.sync_engine is nisa.engine.sync
    assert [engine.value for engine in nisa.engine] == list(range(7))


def test_the_gpsimd_engine_sends_small_tiles() -> None:
    @jit
    def send(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        mine, theirs = nl.load(x), nl.ndarray(x.shape, x.dtype)
        nisa.sendrecv(mine, theirs, 0, 0, pipe_id=0, dma_engine=nisa.dma_engine.gpsimd_dma)
        nisa.dma_copy(out, theirs, engine=nisa.sync_engine)
        return out

    for kind, most in ((torch.float32, 256), (torch.bfloat16, 256), (torch.int8, 256)):
        x = torch.arange(2 * most).reshape(2, most).to(kind)
        assert torch.equal(send(x), x)
        with pytest.raises(nisa.NkiValidationError) as caught:
            send(torch.zeros(2, most + 1, dtype=kind))
        assert caught.value.rule == "free-limit"


def test_a_core_that_waits_for_ever_is_found() -> None:
    @jit
    def lonely(x: Any) -> None:
        if nl.program_id(0) == 0:
            nisa.core_barrier(x, (0, 1))

    with pytest.raises(NkiLaunchError, match="waits at core_barrier"):
        lonely[2](torch.zeros(1, 1))


def test_different_meetings_and_different_allocations_are_refused() -> None:
    @jit
    def crossed(x: Any) -> None:
        if nl.program_id(0) == 0:
            nisa.core_barrier(x, (0, 1))
        else:
            tile = nl.zeros((1, 1), nl.float32)
            nisa.sendrecv(tile, nl.ndarray((1, 1), nl.float32), 0, 0, pipe_id=0)

    with pytest.raises(NkiValidationError) as caught:
        crossed[2](torch.zeros(1, 1))
    assert caught.value.rule == "cores"

    @jit
    def uneven(x: Any) -> Any:
        return nl.ndarray((1 + nl.program_id(0), 2), nl.float32, nl.shared_hbm)

    with pytest.raises(NkiValidationError) as caught:
        uneven[2](torch.zeros(1, 1))
    assert caught.value.rule == "shared-allocation"


def test_an_error_on_one_core_ends_the_launch() -> None:
    @jit
    def fails(x: Any) -> None:
        if nl.program_id(0) == 1:
            raise KeyError("of core 1")
        nisa.core_barrier(x, (0, 1))

    with pytest.raises(KeyError, match="of core 1"):
        fails[2](torch.zeros(1, 1))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("nki-core")]


@pytest.mark.parametrize("grid", [3, 0, (2, 2), "2"])
def test_other_numbers_of_cores_are_refused(grid: Any) -> None:
    with pytest.raises(NkiLaunchError, match="1 or 2"):
        double[grid]


# Options --------------------------------------------------------------------------------------------------------------


def test_settings_of_jit() -> None:
    assert isinstance(jit(double), Kernel)
    assert torch.equal(jit(mode="auto")(double.func)(torch.ones(1, 1)), torch.full((1, 1), 2.0))
    with pytest.raises(NkiLaunchError, match="NEURON_PLATFORM_TARGET_OVERRIDE"):
        jit(double.func, platform_target="trn2")
    with pytest.raises(NkiLaunchError, match="does not know speed"):
        jit(double.func, speed=1)
    with pytest.raises(NkiLaunchError, match="There is no version"):
        simulate(double, language="0.2")(torch.ones(1, 1))
    assert double.with_schedule([("b", "a")]).schedule == (("b", "a"),)


def test_the_environment_chooses_chip_and_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    @jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        tile = nl.load(x, dtype=nl.bfloat16)
        nl.store(out, tile)
        assert nl.tile_size.sbuf_fmax_bytes == 256 * 1024
        return out

    x = torch.tensor([[1.0009765625]])
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    assert kernel(x).item() == 1.0
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    assert kernel(x).item() == x.item()
    monkeypatch.setenv("NKI_SIMULATOR", "0")
    with pytest.raises(NkiLaunchError, match="NKI_SIMULATOR"):
        kernel(x)
    assert simulate(kernel)(x).item() == x.item()


def test_instructions_outside_of_a_kernel_are_refused() -> None:
    with pytest.raises(NkiLaunchError, match="No kernel is running"):
        nl.ndarray((1, 1), nl.float32)


# Shapes only ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lnc", [1, 2])
def test_without_data_shapes_and_rules_are_followed(lnc: int) -> None:
    got = halves[lnc](torch.empty(8, 2, device="meta", dtype=torch.bfloat16))
    assert (got.shape, got.dtype, got.device.type) == ((8, 2), torch.bfloat16, "meta")
    with pytest.raises(NkiValidationError):
        double(torch.empty(200, 2, device="meta"))
    with FakeTensorMode():
        fake = double(torch.empty(3, 4, device="neuron"))
    assert (fake.shape, fake.device.type) == ((3, 4), "neuron")


def test_a_number_that_needs_data_says_so() -> None:
    @jit
    def reads(x: Any) -> Any:
        tile = nl.load(x)
        if nisa.register_alloc(tile) > 3:
            return None
        return x

    with pytest.raises(NkiValidationError, match="runs without data") as caught:
        reads(torch.empty(1, 1, device="meta"))
    assert caught.value.rule == "register"
    assert reads(torch.full((1, 1), 9.0)) is None


def test_an_operator_made_of_a_kernel_knows_its_shapes() -> None:
    @nki_op("nki_launch_tests::double")
    def operator(x: torch.Tensor) -> torch.Tensor:
        return double(x)

    x = torch.ones(3, 4, device="neuron")
    assert torch.equal(operator(x), x * 2)
    assert operator(torch.empty(3, 4, device="meta")).shape == (3, 4)
    torch.library.opcheck(operator, (torch.ones(2, 2),))


# Records --------------------------------------------------------------------------------------------------------------


def test_records_say_what_happened_and_where() -> None:
    @jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray((64, 32), nl.float32, nl.shared_hbm, name="result")
        left = nl.ndarray((128, 64), x.dtype, address=(0, 1024))
        nisa.dma_copy(left, x, name="load")
        acc = nl.ndarray((64, 32), nl.float32, nl.psum)
        with nl.no_reorder():
            for _ in range(2):
                nisa.nc_matmul(acc, left, left[:, 0:32])
        copied = nl.ndarray((64, 32), nl.float32)
        nisa.tensor_copy(copied, acc, engine=nisa.vector_engine).depends_on()
        nisa.dma_copy(out, copied)
        return out

    with trace.collect() as events:
        kernel(torch.randn(128, 64).bfloat16())
    started, finished = events[0], events[-1]
    assert isinstance(started, trace.LaunchStarted)
    assert (started.kernel, started.lnc, started.computes) == ("kernel", 1, True)
    assert isinstance(finished, trace.LaunchFinished)
    assert finished.instructions == (5,)
    allocations = {event.id: event for event in events if isinstance(event, trace.Allocation)}
    assert [a.buffer.name for a in allocations.values()] == ["shared_hbm", "shared_hbm", "sbuf", "psum", "sbuf"]
    placed = next(a for a in allocations.values() if a.address is not None)
    assert (placed.address, placed.bytes_per_partition, placed.partitions) == ((0, 1024), 128, 128)
    assert finished.outputs == tuple(a.id for a in allocations.values() if a.name == "result")

    load, first, second, copied, _ = (event for event in events if isinstance(event, trace.Instruction))
    assert (load.opcode, load.name, load.bytes_read(nl.shared_hbm), load.bytes_written(nl.sbuf)) == (
        "dma_copy",
        "load",
        16384,
        16384,
    )
    assert (load.dma.descriptors, load.dma.descriptor_bytes) == (128, 128)
    assert load.source.file == __file__
    assert (first.matmul.k, first.matmul.m, first.matmul.n) == (128, 64, 32)
    assert (first.matmul.accumulates, second.matmul.accumulates) == (False, True)
    assert [operand.access for operand in second.operands] == [
        trace.Access.UPDATE,
        trace.Access.READ,
        trace.Access.READ,
    ]
    moving = second.operands[2]
    assert (moving.partition, moving.partitions, moving.first_byte, moving.end_byte) == (0, 128, 0, 64)
    assert second.source.line == first.source.line
    assert (copied.engine, copied.engine_is_given, first.engine_is_given) == (nisa.vector_engine, True, False)
    assert trace.Dependency(core=0, earlier=1, later=2) in events


def test_meetings_of_cores_are_numbered() -> None:
    @jit
    def kernel(x: Any) -> None:
        for _ in range(2):
            nisa.core_barrier(x, (0, 1))

    with trace.collect() as events:
        kernel[2](torch.zeros(1, 1))
    met = [(event.core, event.meeting, event.cores) for event in events if isinstance(event, trace.Instruction)]
    assert sorted(met) == [(0, 0, (0, 1)), (0, 1, (0, 1)), (1, 0, (0, 1)), (1, 1, (0, 1))]


def test_failed_launches_are_finished_and_observers_may_refuse() -> None:
    with trace.collect() as events, pytest.raises(NkiValidationError):
        double(torch.ones(200, 2))
    assert isinstance(events[-1].error, NkiValidationError)

    def refuse(event: trace.Event) -> None:
        if isinstance(event, trace.Instruction):
            raise PermissionError

    with pytest.raises(PermissionError):
        simulate(double, observers=[refuse])(torch.ones(2, 2))


def test_many_instructions_leave_nothing_behind() -> None:
    import tracemalloc

    growth = []

    def kernel() -> None:
        tile = nl.zeros((1, 64), nl.float32)
        for turn in range(4):
            for step in range(2000):
                nisa.tensor_scalar(tile[:, step % 64], tile[:, step % 64], nl.add, float(step))
            if turn == 0:
                tracemalloc.start()
            growth.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()

    simulate(jit(kernel))()
    assert growth[-1] - growth[1] < 200_000
    assert not math.isnan(growth[-1])
