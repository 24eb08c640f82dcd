"""The device allocator: pools, size classes, invariants, statistics, limits, snapshots."""

import gc
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.cuda import _memory_viz as visualizer

KIB = 2**10
MIB = 2**20
CORE = "neuron:3"  # no other test allocates here
SIZES = st.one_of(
    st.integers(0, 4 * KIB), st.integers(4 * KIB, 2 * MIB), st.integers(MIB - 300, MIB + 300), st.integers(1, 24 * MIB)
)


def rounded(size: int) -> int:
    """What a request of `size` bytes takes: four classes to a doubling from 256 B on, 64 B steps from 16 MiB on."""
    if size == 0:
        return 0
    if size >= 16 * MIB:
        return -(-size // 64) * 64
    base = 256
    while 2 * base < size:
        base *= 2
    return next(base + quarter * base // 4 for quarter in range(5) if size <= base + quarter * base // 4)


def pool_of(size: int) -> str:
    return "small_pool" if size < MIB else "large_pool"


def take(size: int, device: str = CORE) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def stats() -> dict[str, int]:
    return torch.neuron.memory_stats(CORE)


@pytest.fixture(autouse=True)
def _empty_core() -> Iterator[None]:
    torch.neuron.init()
    for name in ("last_exc", "last_value", "last_traceback"):
        vars(sys).pop(name, None)  # a failed test's frames hold its tensors
    gc.collect()
    torch.neuron.empty_cache()
    torch.neuron.reset_accumulated_memory_stats(CORE)
    torch.neuron.reset_peak_memory_stats(CORE)
    assert torch.neuron.memory_reserved(CORE) == 0, "an earlier test holds memory of this core"
    yield
    torch.neuron.set_per_process_memory_fraction(1.0, CORE)


@given(size=SIZES)
@settings(max_examples=150, deadline=None)
def test_requests_round_up_to_their_size_class(size: int) -> None:
    before = stats()
    tensor = take(size)
    after = stats()
    taken = after["allocated_bytes.all.current"] - before["allocated_bytes.all.current"]
    assert taken == rounded(size) if size < 16 * MIB else 0 <= taken - rounded(size) < 256
    assert after["requested_bytes.all.current"] - before["requested_bytes.all.current"] == size
    assert tensor.untyped_storage().nbytes() == size
    assert tensor.data_ptr() % 64 == 0


@pytest.mark.parametrize(
    ("size", "taken"),
    [
        *[(1, 256), (256, 256), (257, 320), (321, 384), (385, 448), (449, 512), (513, 640)],
        *[(MIB - 1, MIB), (MIB + 1, MIB * 5 // 4), (16 * MIB - 1, 16 * MIB), (16 * MIB, 16 * MIB)],
        *[(16 * MIB + 1, 16 * MIB + 64), (17 * MIB + 64, 17 * MIB + 64)],
    ],
)
def test_size_classes_by_example(size: int, taken: int) -> None:
    tensor = take(size)
    assert torch.neuron.memory_allocated(CORE) == taken
    del tensor
    assert torch.neuron.memory_allocated(CORE) == 0


@pytest.mark.parametrize(("size", "pool"), [(MIB - 1, "small_pool"), (MIB, "large_pool")])
def test_pools_part_at_one_mebibyte(size: int, pool: str) -> None:
    tensor = take(size)
    other = {"small_pool": "large_pool", "large_pool": "small_pool"}[pool]
    for key in ("allocation", "segment"):
        assert stats()[f"{key}.{pool}.current"] == 1
        assert stats()[f"{key}.{other}.current"] == 0
    assert tensor.is_neuron


def test_a_freed_block_is_used_again() -> None:
    tensor = take(5000)
    address, reserved = tensor.data_ptr(), torch.neuron.memory_reserved(CORE)
    del tensor
    again = take(4999)
    assert again.data_ptr() == address
    assert torch.neuron.memory_reserved(CORE) == reserved


def test_neighbouring_free_blocks_join() -> None:
    tensors = [take(5 * MIB) for _ in range(4)]  # one segment of 20 MiB
    assert stats()["segment.all.current"] == 1
    del tensors
    assert take(20 * MIB).is_neuron
    assert stats()["segment.all.current"] == 1


def check_invariants(live: list[tuple[torch.Tensor, int]]) -> None:
    now = stats()
    for pool in ("all", "small_pool", "large_pool"):
        reserved, allocated, active, requested = (
            now[f"{kind}_bytes.{pool}.current"] for kind in ("reserved", "allocated", "active", "requested")
        )
        sizes = [t.numel() for t, _ in live if t.numel() and pool in ("all", pool_of(t.numel()))]
        assert reserved >= allocated >= active >= 0
        rests = 256 * sum(size >= MIB for size in sizes)  # too small to split off
        assert sum(map(rounded, sizes)) <= allocated <= sum(map(rounded, sizes)) + rests
        assert requested == sum(sizes)
        assert now[f"allocation.{pool}.current"] == len(sizes)
        for kind in ("reserved", "allocated", "active", "requested"):
            each = {key: now[f"{kind}_bytes.{pool}.{key}"] for key in ("current", "peak", "allocated", "freed")}
            assert each["peak"] >= each["current"] == each["allocated"] - each["freed"]
    check_snapshot(now, live)


def check_snapshot(now: dict[str, int], live: list[tuple[torch.Tensor, int]]) -> None:
    segments = [segment for segment in torch.neuron.memory_snapshot() if segment["device"] == 3]
    assert sum(s["total_size"] for s in segments) == now["reserved_bytes.all.current"]
    assert sum(s["allocated_size"] for s in segments) == now["allocated_bytes.all.current"]
    assert len(segments) == now["segment.all.current"]
    used = {}
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at, "blocks cover their segment without gaps and without overlap"
            at += block["size"]
            if block["state"] == "active_allocated":
                used[block["address"]] = block["requested_size"]
        assert at == segment["address"] + segment["total_size"]
    assert used == {tensor.data_ptr(): tensor.numel() for tensor, _ in live if tensor.numel()}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), SIZES),
        st.tuples(st.just("free"), st.integers(0, 2**16)),
        st.tuples(st.just("empty"), st.just(0)),
        st.tuples(st.just("reset"), st.just(0)),
    ),
    max_size=25,
)


@given(steps=STEPS, fraction=st.sampled_from([1.0, 64 * MIB / (24 * 2**30)]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_reserved_allocated_active_hold_over_any_sequence(steps: list[tuple[str, int]], fraction: float) -> None:
    torch.neuron.set_per_process_memory_fraction(fraction, CORE)
    torch.neuron.reset_accumulated_memory_stats(CORE)
    live: list[tuple[torch.Tensor, int]] = []
    for number, (step, value) in enumerate(steps):
        if step == "take":
            try:
                tensor = take(value)
            except torch.OutOfMemoryError:
                assert fraction < 1
                continue
            tensor[:64].fill_(number)  # its neighbours' bytes stay as they are
            tensor[-64:].fill_(number)
            live.append((tensor, number))
        elif step == "free" and live:
            del live[value % len(live)]
        elif step == "empty":
            torch.neuron.empty_cache()
        elif step == "reset":
            torch.neuron.reset_peak_memory_stats(CORE)
        tensor = None  # type: ignore[assignment]
        if not any(kind == "reset" for kind, _ in steps[: number + 1]) or step == "reset":
            check_invariants(live)
    for tensor, number in live:
        assert {*tensor[:64].tolist(), *tensor[-64:].tolist()} <= {number}
    tensor = None  # type: ignore[assignment]
    live.clear()
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved(CORE) == 0
    assert torch.neuron.memory_allocated(CORE) == 0


def test_empty_cache_keeps_what_is_in_use() -> None:
    tensor = take(100).fill_(7)
    large = take(3 * MIB).fill_(9)
    del large
    torch.neuron.empty_cache()
    assert stats()["segment.large_pool.current"] == 0
    assert stats()["segment.small_pool.current"] == 1
    assert tensor.eq(7).all()


def test_statistics_have_cuda_s_keys() -> None:
    groups = (
        "allocation", "segment", "active", "inactive_split",
        "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes",
    )  # fmt: skip
    expected = {
        f"{group}.{pool}.{kind}"
        for group in groups
        for pool in ("all", "small_pool", "large_pool")
        for kind in ("current", "peak", "allocated", "freed")
    }
    expected |= {"num_alloc_retries", "num_ooms", "max_split_size", "num_device_alloc", "num_device_free"}
    assert expected <= stats().keys()


def test_peaks_and_totals_start_over() -> None:
    tensor = take(2 * MIB)
    del tensor
    kept = take(1000)
    assert torch.neuron.max_memory_allocated(CORE) == 2 * MIB
    torch.neuron.reset_peak_memory_stats(CORE)
    assert torch.neuron.max_memory_allocated(CORE) == torch.neuron.memory_allocated(CORE) == 1024
    assert torch.neuron.max_memory_reserved(CORE) == torch.neuron.memory_reserved(CORE)
    assert stats()["allocation.all.freed"] == 1
    torch.neuron.reset_accumulated_memory_stats(CORE)
    assert stats()["allocation.all.freed"] == 0
    assert kept.is_neuron


def test_each_core_has_its_own_account() -> None:
    before = torch.neuron.memory_allocated("neuron:2")
    tensor = take(4096)
    assert torch.neuron.memory_allocated(CORE) == 4096
    assert torch.neuron.memory_allocated("neuron:2") == before
    assert torch.neuron.memory_allocated(torch.device(CORE)) == torch.neuron.memory_allocated(3) == tensor.numel()


def test_memory_info_follows_what_is_reserved() -> None:
    total = torch.neuron.get_device_properties(CORE).total_memory
    assert torch.neuron.mem_get_info(CORE) == (total, total)
    tensor = take(MIB)
    reserved = torch.neuron.memory_reserved(CORE)
    assert torch.neuron.mem_get_info(CORE) == (total - reserved, total)
    assert torch.accelerator.get_memory_info(3) == torch.neuron.mem_get_info(CORE)
    assert tensor.is_neuron


def test_the_summary_is_a_table_for_people() -> None:
    tensor = take(3 * MIB)
    summary = torch.neuron.memory_summary(CORE)
    assert summary.startswith("neuron:3 (trn2)")
    assert "3.0 MiB" in summary
    assert "large pool" in summary
    assert "large pool" not in torch.neuron.memory_summary(CORE, abbreviated=True)
    assert tensor.is_neuron


def test_kernels_results_and_temporaries_are_accounted() -> None:
    table = torch.ones(10, 1000, device=CORE)
    indices = torch.zeros(1000, dtype=torch.int64, device=CORE)
    torch.neuron.reset_peak_memory_stats(CORE)
    before = torch.neuron.memory_allocated(CORE)
    result = torch.nn.functional.embedding(indices, table)
    assert torch.neuron.memory_allocated(CORE) - before >= result.numel() * 4
    values = torch.rand(MIB, device=CORE)
    torch.neuron.reset_peak_memory_stats(CORE)
    before = torch.neuron.memory_allocated(CORE)
    ordered, order = torch.sort(values)
    assert torch.neuron.memory_allocated(CORE) - before == ordered.numel() * 4 + order.numel() * 8
    assert torch.neuron.max_memory_allocated(CORE) >= torch.neuron.memory_allocated(CORE)
    del table, indices, result, values, ordered, order
    assert torch.neuron.memory_allocated(CORE) == 0


def test_threads_allocate_side_by_side() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for round_ in range(30):
                tensors = [take(1 + (round_ * 7919 * (i + 1)) % (2 * MIB)).fill_(number) for i in range(4)]
                assert all(tensor.eq(number).all() for tensor in tensors)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert torch.neuron.memory_allocated(CORE) == 0


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_a_fraction_limits_this_process() -> None:
    total = torch.neuron.get_device_properties(CORE).total_memory
    torch.neuron.set_per_process_memory_fraction(32 * MIB / total, CORE)
    with pytest.raises(torch.OutOfMemoryError, match=r"32\.00 MiB"):
        take(33 * MIB)
    assert take(32 * MIB).is_neuron
    for wrong in (-0.1, 1.1):
        with pytest.raises(ValueError, match="from 0 to 1"):
            torch.neuron.set_per_process_memory_fraction(wrong, CORE)


OUT_OF_MEMORY = """
import gc, json, torch
from torch.nn import functional as F

MIB = 2**20
answers = {}

def attempt(name, function):
    try:
        function()
    except torch.OutOfMemoryError as error:
        answers[name] = str(error)
    else:
        answers[name] = "enough"
    gc.collect()

held = torch.ones(16 * MIB, dtype=torch.uint8, device="neuron")
answers["total"] = torch.neuron.mem_get_info()[1]
attempt("empty", lambda: torch.empty(100 * MIB, dtype=torch.uint8, device="neuron"))
attempt("copy", lambda: torch.empty(100 * MIB, dtype=torch.uint8).to("neuron"))
attempt("add", lambda: torch.ones(8 * MIB, device="neuron") + 1)
weight = torch.ones(4, 1024, device="neuron")
indices = torch.zeros(20000, dtype=torch.int64, device="neuron")
attempt("embedding", lambda: F.embedding(indices, weight))
values = torch.rand(4 * MIB, device="neuron")
attempt("sort", lambda: torch.sort(values))
attempt("cat", lambda: torch.cat([values, values, values]))
attempt("float64", lambda: values.to(torch.float64).sum())
attempt("foreach", lambda: torch._foreach_add([values, values], 1.0))
attempt("resize", lambda: held.resize_(80 * MIB))
attempt("core 1", lambda: torch.empty(60 * MIB, dtype=torch.uint8, device="neuron:1"))
image = torch.ones(1, 32, 64, 64, device="neuron")
attempt("unfold", lambda: F.unfold(image, 9))
answers["ooms"] = torch.neuron.memory_stats()["num_ooms"]
del values, image, indices, weight, attempt
answers["allocated"] = torch.neuron.memory_allocated()
big = torch.ones(6 * MIB, device="neuron")  # the cache gives way
answers["goes on"] = [big.sum().item() == 6 * MIB, held[: 16 * MIB].eq(1).all().item()]
answers["retries"] = torch.neuron.memory_stats()["num_alloc_retries"]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def out_of_memory(fresh: Any) -> dict[str, Any]:
    """What happened to a process with 64 MiB of device memory."""
    answer: dict[str, Any] = fresh(
        "import warnings; warnings.simplefilter('ignore')\n" + OUT_OF_MEMORY,
        TORCH_NEURONX_EMULATOR_HBM_BYTES="64MiB",
    ).answer
    return answer


def test_running_out_names_request_allocated_reserved_and_free(out_of_memory: dict[str, Any]) -> None:
    text = out_of_memory["empty"]
    assert out_of_memory["total"] == 64 * MIB
    for part in (
        "100.00 MiB",
        "neuron:0",
        "64.00 MiB",
        "Allocated: 16.00 MiB",
        "reserved: 16.00 MiB",
        "free: 48.00 MiB",
    ):
        assert part in text
    assert "Free tensors" in text


@pytest.mark.parametrize("case", ["copy", "add", "embedding", "sort", "cat", "float64", "foreach", "resize", "unfold"])
def test_kernels_run_out_too(out_of_memory: dict[str, Any], case: str) -> None:
    assert "out of memory" in out_of_memory[case]


def test_one_core_s_memory_is_not_another_s(out_of_memory: dict[str, Any]) -> None:
    assert out_of_memory["core 1"] == "enough"


def test_the_process_goes_on_after_running_out(out_of_memory: dict[str, Any]) -> None:
    assert out_of_memory["ooms"] >= 9
    assert out_of_memory["retries"] >= 1
    assert out_of_memory["allocated"] == 16 * MIB, "nothing of a failed kernel stays behind"
    assert out_of_memory["goes on"] == [True, True]


SPLITTING = """
import json, torch
MIB = 2**20
def take(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="neuron")
reserved = []
take(40)  # freed at once
for mib in (24, 36):
    kept = take(mib)
    reserved.append(torch.neuron.memory_reserved() // MIB)
    del kept
stats = torch.neuron.memory_stats()
print(json.dumps([reserved, stats["max_split_size"]]))
"""


@pytest.mark.parametrize(
    ("setting", "reserved"),
    [
        ("", [40, 40]),  # everything may be split
        (f"kMaxSplitSizeBytes={32 * MIB}", [64, 64]),  # 24 leaves the 40 alone; 36 takes it as it is
        (f"kMaxSplitSizeBytes={32 * MIB},kMaxNonSplitRoundingBytes={2 * MIB}", [64, 100]),  # 36 may not waste 4
        (f" kMaxNonSplitRoundingBytes = {64 * MIB} , kMaxSplitSizeBytes = {32 * MIB} ", [64, 64]),
    ],
)
def test_the_allocator_s_settings(fresh: Any, setting: str, reserved: list[int]) -> None:
    answer, limit = fresh(SPLITTING, TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG=setting).answer
    assert answer == reserved
    if setting:
        assert limit == 32 * MIB


@pytest.mark.parametrize("setting", ["kMaxSplitSizeBytes", "kMaxSplitSizeBytes=much", "kMaxSplitSize=1", "=1", "x"])
def test_a_setting_that_cannot_be_used_is_named(fresh: Any, setting: str) -> None:
    done = fresh("import torch; torch.ones(1, device='neuron')", TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG=setting)
    assert done.status == 1
    last = done.err.strip().splitlines()[-1]
    assert last.startswith("torch_neuronx.errors.ConfigurationError: TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG")
    assert "kMaxSplitSizeBytes and kMaxNonSplitRoundingBytes" in last


# ---- snapshots -------------------------------------------------------------------------------------------------------


def test_a_snapshot_opens_in_the_memory_visualizer(tmp_path: Path) -> None:
    torch.neuron.memory._record_memory_history(max_entries=1000)
    try:
        kept = [take(1000), take(3 * MIB)]
        take(5 * MIB)
        total = torch.neuron.get_device_properties(CORE).total_memory
        torch.neuron.set_per_process_memory_fraction(64 * MIB / total, CORE)
        with pytest.raises(torch.OutOfMemoryError):
            take(100 * MIB)
        file = tmp_path / "snapshot.pickle"
        torch.neuron.memory._dump_snapshot(file)
    finally:
        torch.neuron.memory._record_memory_history(enabled=None)
    snapshot = pickle.loads(file.read_bytes())
    actions = [entry["action"] for entry in snapshot["device_traces"][3]]
    assert {"alloc", "free_requested", "free_completed", "segment_alloc", "oom"} <= set(actions)
    allocation = next(entry for entry in snapshot["device_traces"][3] if entry["action"] == "alloc")
    assert any(frame["filename"] == __file__ and frame["name"] == "take" for frame in allocation["frames"])
    blocks = [block for s in snapshot["segments"] if s["device"] == 3 for block in s["blocks"]]
    assert {block["requested_size"] for block in blocks if block["state"] == "active_allocated"} == {1000, 3 * MIB}

    assert "Active Memory Timeline" in visualizer.trace_plot(snapshot)
    assert "Allocator State History" in visualizer.segment_plot(snapshot)
    assert "3.0MiB" in visualizer.segsum(snapshot)
    assert "alloc(" in visualizer.trace(snapshot)
    assert kept[0].is_neuron


def test_history_ends_and_forgets() -> None:
    torch.neuron.memory._record_memory_history(max_entries=3)
    for _ in range(5):
        take(100)
    assert len(torch.neuron.memory._snapshot()["device_traces"][3]) == 3
    torch.neuron.memory._record_memory_history(enabled=None)
    take(100)
    assert torch.neuron.memory._snapshot()["device_traces"][3] == []
    torch.neuron.memory._record_memory_history(context=None)
    take(100)
    assert all(not entry["frames"] for entry in torch.neuron.memory._snapshot()["device_traces"][3])
    torch.neuron.memory._record_memory_history(enabled=None)
