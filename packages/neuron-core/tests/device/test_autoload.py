"""What `import torch` does with this package installed: it finds the device, and touches nothing else."""

import importlib.metadata
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

LOOK = """
import atexit, builtins, importlib, json, logging, os, signal, sys, threading, types, warnings
import torch

CONFIGURATIONS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
CLASSES = (torch.Tensor, torch.nn.Module, torch.nn.Parameter, torch.UntypedStorage, torch.TypedStorage, torch.device,
           torch.storage._StorageBase, torch.nn.utils.rnn.PackedSequence, torch.Generator, torch.Stream, torch.Event)

def look():
    "Everything that a library could change behind its user's back, by name."
    seen = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch" and isinstance(module, types.ModuleType):
            seen.update({f"{name}.{key}": id(value) for key, value in list(vars(module).items())
                         if not (type(value) is types.ModuleType and value.__name__.startswith("torch."))})
    for class_ in CLASSES:
        name = f"{class_.__module__}.{class_.__qualname__}"
        seen.update({f"{name}.{key}": id(value) for key, value in vars(class_).items()})
    for name in CONFIGURATIONS:
        module = sys.modules.get(name)
        if module is not None:
            seen.update({f"{name} {key}": repr(value) for key, value in module.get_config_copy().items()})
    seen.update({f"os.environ {key}": value for key, value in os.environ.items()})
    seen.update({f"signal {number}": repr(signal.getsignal(number)) for number in signal.valid_signals()})
    seen.update({f"logger {name}": repr((logger, logger.handlers, logger.disabled))
                 for name, logger in [("root", logging.getLogger()), ("torch", logging.getLogger("torch"))]})
    for place in ("path", "meta_path", "path_hooks", "argv", "flags", "excepthook", "displayhook", "unraisablehook"):
        seen[f"sys.{place}"] = repr(getattr(sys, place))
    seen["warnings"] = repr(warnings.filters)
    seen["threads"] = repr(threading.enumerate())
    seen["exit handlers"] = atexit._ncallbacks()
    seen["builtins"] = repr(sorted(vars(builtins)))
    for setting in ("get_default_dtype", "get_default_device", "is_grad_enabled", "get_float32_matmul_precision",
                    "get_num_threads", "are_deterministic_algorithms_enabled", "initial_seed"):
        seen[f"torch.{setting}()"] = repr(getattr(torch, setting)())
    seen["random state"] = repr(torch.get_rng_state().sum().item())
    return seen

def changes(before, after):
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
"""

ADDED = {
    *("torch.neuron", "torch.utils.backend_registration._privateuse1_backend_name"),
    *("torch.Tensor.neuron", "torch.Tensor.is_neuron"),
    "torch.nn.modules.module.Module.neuron",
    *("torch.nn.utils.rnn.PackedSequence.neuron", "torch.nn.utils.rnn.PackedSequence.is_neuron"),
    *("torch.storage._StorageBase.neuron", "torch.storage._StorageBase.is_neuron"),
    *("torch.storage.UntypedStorage.neuron", "torch.storage.UntypedStorage.is_neuron"),
    *("torch.storage.TypedStorage.neuron", "torch.storage.TypedStorage.is_neuron"),
}
"""What a PrivateUse1 backend adds by PyTorch's own functions."""

PROCESS_GROUP = {"torch.distributed.Backend.NEURON", "torch.distributed.distributed_c10d.Backend.NEURON"}


@pytest.fixture(scope="module")
def loading(fresh_without_device: Any) -> dict[str, Any]:
    """What changes where torch loads the package, and then a second time."""
    code = """
    for name in CONFIGURATIONS:
        importlib.import_module(name)
    import torch.distributed
    before, modules = look(), set(sys.modules)
    torch._import_device_backends()  # what `import torch` does at its end
    after = look()
    answer = {"first": changes(before, after), "modules": sorted(set(sys.modules) - modules)}
    torch._import_device_backends()
    import torch_neuronx
    from torch_neuronx._autoload import autoload
    autoload()
    importlib.reload(torch_neuronx)
    answer["second"] = changes(after, look())
    answer["opened"] = torch.neuron.is_initialized()
    answer["found"] = torch.neuron.is_available()
    print(json.dumps(answer))
    """
    answer: dict[str, Any] = fresh_without_device(LOOK + textwrap.dedent(code)).answer
    return answer


def test_it_adds_the_device_and_changes_nothing_else(loading: dict[str, Any]) -> None:
    changed = set(loading["first"])
    assert {"torch.neuron", "torch.Tensor.neuron", "torch.Tensor.is_neuron"} <= changed
    extra = {name for name in changed - ADDED - PROCESS_GROUP if not name.startswith("torch.neuron.")}
    assert extra == set()


def test_a_second_time_changes_nothing(loading: dict[str, Any]) -> None:
    assert loading["second"] == []


def test_no_runtime_is_opened(loading: dict[str, Any]) -> None:
    assert not loading["opened"]
    assert loading["found"]


HEAVY = (
    "torch_mlir",
    "jax",
    "jaxlib",
    "torch._dynamo",
    "torch._inductor",
    "pluggy",
    "typer",
    "rich",
    "numpy",
    "concurrent",
)


def test_nothing_heavy_is_loaded(loading: dict[str, Any]) -> None:
    modules = loading["modules"]
    assert [name for name in modules if name.startswith(HEAVY)] == []
    assert "torch_neuronx.runtimes.select" not in modules
    assert len(modules) < 40, modules


def test_the_switch_turns_it_off(fresh_without_device: Any) -> None:
    code = """
    import json, sys, torch
    before = [hasattr(torch, "neuron"), hasattr(torch.Tensor, "neuron"), "torch_neuronx" in sys.modules,
              torch.accelerator.is_available()]
    try:
        torch.device("neuron")
    except RuntimeError as error:
        before.append("neuron" in str(error))
    import torch_neuronx
    print(json.dumps([before, torch.ones(2, device="neuron").sum().item(), torch.accelerator.device_count()]))
    """
    assert fresh_without_device(code).answer == [[False, False, False, False, True], 2.0, 4]


COMPILE = """
import json, torch, warnings
warnings.simplefilter("ignore")  # torch's own, about torch.jit
if REGISTER:
    torch._import_device_backends()
import torch._dynamo
import torch._inductor.config as inductor
from torch._inductor.utils import run_and_get_code
inductor.compile_threads = 1
inductor.fx_graph_cache = False

@torch.compile
def function(x, w):
    return torch.softmax(x @ w, -1).sum() + x.sin().mean()

torch.manual_seed(0)
x, w = torch.randn(8, 4), torch.randn(4, 4, requires_grad=True)
result, codes = run_and_get_code(function, x, w)
result.backward()
print(json.dumps([result.item(), w.grad.tolist(), codes, sorted(set(torch._dynamo.list_backends()) - {"neuron"}),
                  torch._dynamo.utils.counters["stats"]["unique_graphs"], torch.accelerator.is_available()]))
"""


def test_compiling_for_the_cpu_is_as_it_was(fresh_without_device: Any, tmp_path: Path) -> None:
    without, loaded = (
        fresh_without_device(
            COMPILE.replace("REGISTER", register),
            seconds=240,
            TORCHINDUCTOR_CACHE_DIR=str(tmp_path),  # the second process finds the first one's C++ compiled
        ).answer
        for register in ("False", "True")
    )
    assert without[:-1] == loaded[:-1]
    assert [without[-1], loaded[-1]] == [False, True]


# ---- real interpreters -----------------------------------------------------------------------------------------------


def test_interpreters() -> None:
    """Import in either order, with the switch on, off and odd; nothing is printed, nothing heavy is loaded."""
    use = "assert torch.ones(2, device='neuron').sum().item() == 2"
    light = f"assert not [m for m in sys.modules if m.startswith({HEAVY[:5]!r})]"
    cases = [
        ("1", f"import sys, torch; {light}; assert torch.neuron.is_available(); {use}"),
        (None, f"import torch_neuronx, sys; assert 'torch' not in sys.modules; import torch; {use}"),
        ("0", f"import torch, torch_neuronx; {use}"),
        ("false", f"import torch_neuronx, torch; torch_neuronx.synchronize(); {use}"),
        ("0", "import torch; assert not hasattr(torch, 'neuron')"),
        ("1", f"from torch_neuronx._autoload import autoload; import torch; autoload(); {use}"),
        ("1", f"import torch_neuronx._registration, torch; {use}"),
        ("1", f"import torch_neuronx.device, torch; {use}"),
        ("1", f"import torch_neuronx.ops.tracking, torch; {use}"),
        ("0", f"import torch_neuronx.device, torch; {use}"),
    ]
    running = []
    for switch, code in cases:
        environment = {key: value for key, value in os.environ.items() if key != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
        environment |= {} if switch is None else {"TORCH_DEVICE_BACKEND_AUTOLOAD": switch}
        command = [sys.executable, "-W", "error", "-c", code]
        running.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    endings = [(*process.communicate(timeout=120), process.returncode) for process in running]
    assert endings == [("", "", 0)] * len(cases)


def test_torch_finds_it_by_its_entry_point() -> None:
    found = [e for e in importlib.metadata.entry_points(group="torch.backends") if e.name == "torch_neuronx"]
    assert [entry.value for entry in found] == ["torch_neuronx._autoload:autoload"]
    assert callable(found[0].load())


# ---- broken installations --------------------------------------------------------------------------------------------

BROKEN = """
import json, sys, types, warnings, torch
{break_it}
torch._import_device_backends()  # never raises
import torch_neuronx
from torch_neuronx import errors
answer = {{"errors": {{}}}}
answer["asks"] = [torch.neuron.is_available(), torch.neuron.device_count(), torch.neuron.is_initialized(),
                  torch.accelerator.is_available(), torch.accelerator.device_count()]
torch.manual_seed(3)
answer["cpu"] = torch.nn.Linear(2, 2)(torch.ones(1, 2)).shape == (1, 2)
pinned = torch.utils.data.DataLoader([1.0, 2.0], pin_memory=False)
answer["loader"] = len(list(pinned))
uses = {{
    "factory": lambda: torch.ones(1, device="neuron"), "again": lambda: torch.ones(1, device="neuron:1"),
    "to": lambda: torch.ones(1).to("neuron"), "module": lambda: torch.nn.Linear(1, 1).to("neuron"),
    "synchronize": lambda: torch.neuron.synchronize(), "memory": lambda: torch.neuron.memory_allocated(),
    "set_device": lambda: torch.neuron.set_device(0), "package": lambda: torch_neuronx.synchronize(),
}}
for name, use in uses.items():
    try:
        use()
        answer["errors"][name] = "ran"
    except BaseException as error:
        answer["errors"][name] = [type(error).__name__, str(error)]
print(json.dumps(answer))
"""

TORCH = importlib.metadata.version("torch").partition("+")[0]
BREAKS = {
    "another torch": (
        "import importlib.machinery\n"
        "built = types.ModuleType('torch_neuronx._build_info'); built.TORCH_VERSION = '2.11.0'\n"
        "sys.modules['torch_neuronx._build_info'] = built",
        "BrokenInstallError",
        [
            f"built for torch 2.11, but torch {TORCH}",
            f"pip install 'torch-neuronx=={TORCH.rpartition('.')[0]}.*'",
            "'torch==2.11.*'",
        ],
    ),
    "no build": (
        "sys.modules['torch_neuronx._build_info'] = None",
        "BrokenInstallError",
        ["was not built", "python -m torch_neuronx.build packages/neuron-core"],
    ),
    "a core that does not load": (
        "sys.modules['torch_neuronx._C'] = None",
        "BrokenInstallError",
        ["cannot be loaded", "pip install --force-reinstall --no-deps torch-neuronx"],
    ),
    "the older package": (
        "import importlib.machinery\n"
        "class Leftover:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch_neuronx.xla_impl':\n"
        "            return importlib.machinery.ModuleSpec(name, None)\n"
        "sys.meta_path.insert(0, Leftover())",
        "LegacyPackageError",
        ["older, XLA-based torch-neuronx", "pip uninstall torch-neuronx"],
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_install_lets_torch_be_imported_and_says_why_on_first_use(
    fresh_without_device: Any, name: str
) -> None:
    break_it, error, parts = BREAKS[name]
    answer = fresh_without_device(BROKEN.format(break_it=break_it)).answer
    assert answer["asks"] == [False, 0, False, False, 0]
    assert answer["cpu"] is True
    assert answer["loader"] == 2
    for use, found in answer["errors"].items():
        assert found[0] == error, (use, found)
        assert all(part in found[1] for part in parts), (use, found)


def test_another_backend_has_the_slot(fresh_without_device: Any) -> None:
    code = """
    import json, torch
    torch.utils.rename_privateuse1_backend("other")
    torch._import_device_backends()
    answers = [hasattr(torch, "neuron"), torch.device("other").type]
    import torch_neuronx
    for name in ("synchronize", "Stream"):
        try:
            answers.append(str(getattr(torch_neuronx, name)()))
        except RuntimeError as error:
            answers.append([type(error).__name__, str(error)])
    print(json.dumps(answers))
    """
    answers = fresh_without_device(code).answer
    assert answers[:2] == [False, "other"]
    for found in answers[2:]:
        assert found[0] == "BrokenInstallError", found
        assert "other" in found[1]
