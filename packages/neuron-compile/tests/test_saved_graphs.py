"""What PyTorch's caches keep of compiled functions: found again, in other processes too, and only where it is right."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from torch_neuronx import plugins
from torch_neuronx.events import CacheLayer, CacheLookedUp, CompileStarted, Event
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.lowerings import Lowering
from torch_neuronx_compile import helpers, loaded
from torch_neuronx_compile.compilers.emulator import compiler as emulator
from torch_neuronx_compile.saved import fingerprint, record
from torch_neuronx_compile.saved.envelope import MAGIC, pack, unpack
from torch_neuronx_compile.saved.errors import SavedGraphError
from torch_neuronx_compile.unit import TensorSpec

from .helpers import compiled

PROGRAM = """
import json, sys
from pathlib import Path
import torch
from torch._dynamo.utils import counters
from torch_neuronx import metrics
from torch_neuronx.neuron_dynamo_backend import get_dynamo_metrics
from torch_neuronx_compile import versions

versions._sources = lambda: "the same, even if somebody edits the package while this runs"
metrics.set_enabled(True)
torch._functorch.config.strict_autograd_cache = True
folder, door = Path(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4)).to("neuron")
x = torch.randn(4, 8)

def affine(x):
    return x * 3.5 - 1

if door == "load":
    torch.compiler.load_cache_artifacts((folder / "mega").read_bytes())
loss = torch.compile(model, backend="neuron")(x.to("neuron")).square().sum()
loss.backward()
if door == "save":
    saved = torch.compile(affine, backend="neuron", fullgraph=True).aot_compile(((x.to("neuron"),), {}))
    saved.save_compiled_function(str(folder / "function"))
    (folder / "mega").write_bytes(torch.compiler.save_cache_artifacts()[0])
elif door == "load":
    with open(folder / "function", "rb") as file:
        loaded = torch.compiler.load_compiled_function(file)
    torch.testing.assert_close(loaded(x.to("neuron")).cpu(), affine(x))
print(json.dumps({
    "loss": loss.item(),
    "gradient": model[0].weight.grad.sum().item(),
    "compilations": metrics.get_counter_value("CompilationCache.TotalCompilations") or 0,
    "lowerings": sum(m.torch_neuronx_lower_us > 0 for m in get_dynamo_metrics()),
    "graphs": len(get_dynamo_metrics()),
    "traced hits": metrics.get_counter_value("CompilationCache.TracedHits") or 0,
    "packages": counters["dynamo_cache"]["dynamo_cache_hit"],
}))
"""


def run(folder: Path, door: str, cache: str, **variables: str) -> dict[str, Any]:
    """Run a training step in a process of its own that finds nothing but PyTorch's cache ``cache``."""
    script = folder / "program.py"
    script.write_text(PROGRAM)
    stores = folder / f"stores-{len(list(folder.iterdir()))}"
    environment = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / cache),
        "TORCH_NEURONX_NEFF_CACHE_DIR": str(stores / "neff"),
        "TORCH_NEURONX_HLO_CACHE_DIR": str(stores / "hlo"),
        **variables,
    }
    stores.mkdir()
    done = subprocess.run(
        [sys.executable, str(script), str(folder), door], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_artifacts_and_a_saved_function_carry_everything(tmp_path: Path) -> None:
    first = run(tmp_path, "save", "one")
    assert (first["compilations"], first["lowerings"], first["graphs"]) == (3, 3, 3)
    again = run(tmp_path, "load", "two")
    assert again == first | {"compilations": 0, "lowerings": 0, "traced hits": 3}


def test_dynamo_s_cache_carries_everything_and_is_written_at_exit(tmp_path: Path) -> None:
    first = run(tmp_path, "run", "one", TORCH_CACHING_PRECOMPILE="1")
    assert (first["compilations"], first["lowerings"], first["packages"]) == (2, 2, 0)
    again = run(tmp_path, "run", "one", TORCH_CACHING_PRECOMPILE="1")
    assert again == first | {"compilations": 0, "lowerings": 0, "traced hits": 2, "packages": 1}


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """What happened since the last look, without look-ups in memory."""
    seen: list[Event] = []

    class Observer:
        @hookimpl
        def torch_neuronx_observe(self, event: Event) -> None:
            seen.append(event)

    plugins.manager().register(Observer(), "events")
    yield seen
    plugins.manager().unregister("events")


def traced(events: list[Event]) -> int:
    return sum(isinstance(event, CacheLookedUp) and event.layer is CacheLayer.TRACED for event in events)


def compilations(events: list[Event]) -> int:
    return sum(isinstance(event, CompileStarted) for event in events)


def afresh() -> None:
    """Forget in this process whatever was compiled."""
    torch.compiler.reset()
    loaded._loaded.clear()
    loaded._neffs.clear()


def dropout(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5)


def wide(x: torch.Tensor) -> torch.Tensor:
    return x.double() / 3 + torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, device=x.device)


def aliases(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x.add_(1)
    return x, x[:2], x * 2


def copied(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sum().cpu() + 1, x * 2


@pytest.mark.filterwarnings("ignore::torch_neuronx.errors.Float64Warning")
@pytest.mark.parametrize("function", [dropout, wide, aliases, copied])
@pytest.mark.parametrize("device", ["neuron", "cpu"])
def test_a_found_graph_gives_what_the_compiled_one_gave(
    function: Callable[..., Any], device: str, events: list[Event]
) -> None:
    results = []
    for _ in range(2):
        afresh()
        torch.manual_seed(3)
        x, y = torch.arange(3.0, device=device), torch.zeros(3, device="neuron")
        results.append((compiled(lambda x, y: (function(x), y + 1))(x, y), x))
    assert traced(events) == 1
    (first, x), (second, again) = results
    assert torch.equal(x, again)
    for one, other in zip(torch.utils._pytree.tree_leaves(first), torch.utils._pytree.tree_leaves(second), strict=True):
        assert (one.dtype, one.device) == (other.dtype, other.device)
        assert torch.equal(one.cpu(), other.cpu())
    assert [metric.torch_neuronx_lower_us for metric in helpers.get_dynamo_metrics()][1:] == [0]


def test_a_found_graph_may_fall_back(events: list[Event]) -> None:
    x = torch.rand(3, device="neuron")
    for _ in range(2):
        afresh()
        function = compiled(lambda x: torch.nn.functional.dropout(x, 0.0) * 2, options={"fallback_execution": True})
        function(x)
    assert traced(events) == 1
    for executable in loaded._loaded.values():
        executable.unload()
    assert torch.equal(function(x), x * 2)


def test_what_decides_the_program_decides_what_is_found(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(3, device="neuron")

    def found(**options: Any) -> bool:
        afresh()
        events.clear()
        compiled(lambda x: x * 1.5 + 2, **options)(x)
        return traced(events) == 1

    assert not found()
    assert found()
    assert not found(options={"fallback_execution": True})

    class Plugin:
        @hookimpl
        def torch_neuronx_register_lowerings(self) -> list[Lowering]:
            return [Lowering("mylib::scale.default", "Scale", lambda: None, "1")]

    plugins.manager().register(Plugin(), "lab")
    try:
        assert not found()
    finally:
        plugins.manager().unregister("lab")
    assert found()
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "versions", lambda: {"torch-mlir": "1"})
        assert not found()
    monkeypatch.setenv("TORCH_NEURONX_NEFF_DISABLE_CACHE", "1")
    for _ in range(2):
        assert not found()
        assert compilations(events) == 1


def test_another_processor_compiles_the_stored_program(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(3, device="neuron")
    function = lambda x: x / 7 - 2  # noqa: E731
    compiled(function)(x)
    afresh()
    events.clear()
    monkeypatch.setattr(emulator, "host_features", lambda: "another one")
    assert torch.equal(compiled(function)(x), x / 7 - 2)
    assert (traced(events), compilations(events)) == (1, 1)


def test_a_damaged_entry_is_compiled_anew(events: list[Event]) -> None:
    x = torch.rand(3, device="neuron")
    function = lambda x: x * 9  # noqa: E731
    compiled(function)(x)
    entries = [path for path in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*") if path.is_file()]
    damaged = 0
    for path in entries:
        content = path.read_bytes()
        at = content.find(MAGIC)
        if at >= 0:
            path.write_bytes(content[: at + 300] + bytes([content[at + 300] ^ 1]) + content[at + 301 :])
            damaged += 1
    assert damaged == 1
    afresh()
    events.clear()
    counters.clear()
    assert torch.equal(compiled(function)(x), x * 9)
    assert traced(events) == 0
    assert counters["aot_autograd"]["autograd_cache_bypass"] == 1


def test_the_user_s_settings_stay() -> None:
    before = torch._functorch.config.save_config(), torch.compiler.config.save_config()
    compiled(lambda x: x + 8)(torch.ones(2, device="neuron"))
    assert (torch._functorch.config.save_config(), torch.compiler.config.save_config()) == before


# The bytes ------------------------------------------------------------------------------------------------------------


def test_every_byte_of_the_envelope_is_verified() -> None:
    sections = {"facts": b"{}", "empty": b"", "program": bytes(range(256))}
    data = pack(sections)
    assert unpack(data) == sections
    for at in range(0, len(data), 7):
        with pytest.raises(SavedGraphError, match="damaged"):
            unpack(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    for wrong in (b"", data[:-1], data + b"\0"):
        with pytest.raises(SavedGraphError, match="damaged"):
            unpack(wrong)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.int64, torch.float64, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_constants_come_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    spec = TensorSpec(shape, dtype, torch.device("cpu"))
    assert torch.equal(record._tensor(spec, record._bytes(tensor)), tensor)


def test_a_value_that_is_not_plain_is_refused() -> None:
    with pytest.raises(TypeError, match="Path cannot be saved"):
        record.to_plain((1, Path("/")))
