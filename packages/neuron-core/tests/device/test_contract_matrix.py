"""Every name that PyTorch, its users or its documentation ask a device module for: there, callable, and answering.

A name that is spelt differently from what is asked would otherwise be found by nobody: torch looks most of them up with
a default.
"""

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_neuronx
from torch_neuronx import _C
from torch_neuronx.errors import MissingExtraError

n = torch.neuron
STREAM = torch.Stream


def call(name: str, *arguments: Any) -> Callable[[], Any]:
    return lambda: getattr(n, name)(*arguments)


# name -> (a call, what its answer is an instance of or equal to)
ANSWERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "is_available": (call("is_available"), True),
    "is_initialized": (call("is_initialized"), True),
    "_initialized": (lambda: n._initialized, True),
    "_is_in_bad_fork": (call("_is_in_bad_fork"), False),
    "_lazy_init": (call("_lazy_init"), None),
    "init": (call("init"), None),
    "device_count": (call("device_count"), 4),
    "current_device": (call("current_device"), 0),
    "set_device": (call("set_device", 0), None),
    "device": (call("device", 0), object),
    "device_of": (call("device_of", torch.empty(0)), object),
    "_exchange_device": (call("_exchange_device", -1), 0),
    "_maybe_exchange_device": (call("_maybe_exchange_device", -1), 0),
    "synchronize": (call("synchronize"), None),
    "get_device_name": (call("get_device_name"), "trn2"),
    "get_device_properties": (call("get_device_properties"), object),
    "get_device_capability": (call("get_device_capability"), (3, 0)),
    "is_bf16_supported": (call("is_bf16_supported"), True),
    "Stream": (call("Stream"), STREAM),
    "Event": (call("Event"), torch.Event),
    "stream": (call("stream", None), object),
    "StreamContext": (call("StreamContext", None), object),
    "current_stream": (call("current_stream"), STREAM),
    "default_stream": (call("default_stream"), STREAM),
    "set_stream": (lambda: n.set_stream(n.current_stream()), None),
    "memory_allocated": (call("memory_allocated"), int),
    "max_memory_allocated": (call("max_memory_allocated"), int),
    "memory_reserved": (call("memory_reserved"), int),
    "max_memory_reserved": (call("max_memory_reserved"), int),
    "memory_stats": (call("memory_stats"), dict),
    "memory_summary": (call("memory_summary"), str),
    "memory_snapshot": (call("memory_snapshot"), list),
    "mem_get_info": (call("mem_get_info"), tuple),
    "reset_peak_memory_stats": (call("reset_peak_memory_stats"), None),
    "reset_accumulated_memory_stats": (call("reset_accumulated_memory_stats"), None),
    "set_per_process_memory_fraction": (call("set_per_process_memory_fraction", 1.0), None),
    "empty_cache": (call("empty_cache"), None),
    "manual_seed": (call("manual_seed", 1), None),
    "manual_seed_all": (call("manual_seed_all", 1), None),
    "seed": (call("seed"), int),
    "seed_all": (call("seed_all"), int),
    "initial_seed": (call("initial_seed"), int),
    "get_rng_state": (call("get_rng_state"), torch.Tensor),
    "get_rng_state_all": (call("get_rng_state_all"), list),
    "set_rng_state": (lambda: n.set_rng_state(n.get_rng_state()), None),
    "set_rng_state_all": (lambda: n.set_rng_state_all(n.get_rng_state_all()), None),
    "default_generators": (lambda: n.default_generators, tuple),
    "_get_generator": (call("_get_generator", torch.device("neuron:1")), torch.Generator),
    "get_amp_supported_dtype": (call("get_amp_supported_dtype"), list),
    "amp": (lambda: n.amp.autocast(), torch.autocast),
    "memory": (lambda: n.memory.memory_allocated(), int),
    "random": (lambda: n.random.initial_seed(), int),
}


@pytest.fixture(autouse=True)
def _open() -> None:
    n.init()


@pytest.mark.parametrize("name", ANSWERS)
def test_a_name_of_the_device_module_answers(name: str) -> None:
    ask, expected = ANSWERS[name]
    answer = ask()
    if isinstance(expected, type):
        assert isinstance(answer, expected)
    else:
        assert answer == expected


def test_the_module_lists_what_it_has() -> None:
    assert {name for name in ANSWERS if not name.startswith("_")} <= set(n.__all__)
    for name in n.__all__:
        value = getattr(n, name)
        assert name == "default_generators" or inspect.getdoc(value), f"torch.neuron.{name} is not documented"


# What torch.cuda has as a parameter and this device has no use for.
LESS = {
    "Stream": {"priority"},
    "Event": {"external"},
    "memory_snapshot": {"mempool_id", "include_traces"},
}


@pytest.mark.parametrize("name", sorted(set(n.__all__) & set(torch.cuda.__all__)))
def test_what_torch_cuda_has_too_takes_the_same_arguments(name: str) -> None:
    ours, theirs = getattr(n, name), getattr(torch.cuda, name)
    if inspect.ismodule(theirs) or not callable(theirs):
        return
    if inspect.isclass(theirs):
        ours, theirs = (c.__new__ if "__new__" in vars(c) else c.__init__ for c in (ours, theirs))
    accepted = inspect.signature(ours).parameters
    for parameter in inspect.signature(theirs).parameters.values():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or parameter.name in LESS.get(name, ()):
            continue
        assert parameter.name in accepted, f"{name}({parameter.name}=...)"


ASKS = re.compile(
    r"""(?:device_module|device_mod|custom_device_mod|device_handle|_device_handle)(?:\.(\w+)\b|,\s*["'](\w+)["'])"""
)
ASKING = [
    "random.py", "serialization.py", "accelerator/__init__.py", "amp/autocast_mode.py", "utils/checkpoint.py",
    "utils/backend_registration.py", "distributed/tensor/_random.py", "distributed/fsdp/_common_utils.py",
    "distributed/fsdp/_runtime_utils.py", "distributed/fsdp/_fully_shard/_fsdp_collectives.py",
    "distributed/fsdp/_fully_shard/_fsdp_param_group.py", "distributed/fsdp/_fully_shard/_fsdp_state.py",
    "testing/_internal/common_device_type.py", "_prims/rng_prims.py", "_functorch/_aot_autograd/utils.py",
    "distributed/device_mesh.py", "distributed/distributed_c10d.py",
]  # fmt: skip
# Asked with a default: the index parser of torch.cuda, and other devices' own.
NOT_HERE = {"_utils", "set_rng_ctx", "unset_rng_ctx"}


def test_every_name_that_torch_s_sources_ask_a_device_module_for_exists() -> None:
    root = Path(torch.__file__).parent
    asked = set()
    for file in ASKING:
        path = root / file
        if path.exists():  # files come and go between releases
            asked |= {name or quoted for name, quoted in ASKS.findall(path.read_text())}
    assert {"get_rng_state", "set_rng_state", "current_stream", "_initialized", "default_generators"} <= asked
    assert {name for name in asked - NOT_HERE if not hasattr(n, name)} == set()


PACKAGE = [
    "synchronize",
    "current_device",
    "current_stream",
    "Stream",
    "stream",
    "memory_stats",
    "memory_allocated",
    "memory_summary",
    "memory_reserved",
    "max_memory_allocated",
    "mem_get_info",
    "empty_cache",
    "reset_peak_memory_stats",
    "memory_snapshot",
    "clear_op_tracking",
    "get_executed_ops",
    "get_fallback_ops",
    "metrics",
    "from_dlpack",
    "to_dlpack",
    "errors",
    "config",
    "targets",
    "plugins",
    "compiler",
    "distributed",
    "neuron_dynamo_backend",
]


@pytest.mark.parametrize("name", PACKAGE)
def test_a_name_of_the_package_loads(name: str) -> None:
    assert name in torch_neuronx.__all__
    value = getattr(torch_neuronx, name)
    assert callable(value) or inspect.ismodule(value)


@pytest.mark.parametrize("name", torch_neuronx.__all__)
def test_every_listed_name_loads_or_names_its_extra(name: str) -> None:
    try:
        value = getattr(torch_neuronx, name)
    except MissingExtraError:  # its text is tested with the wrong uses
        return
    assert value is not None


ARGUMENTS = {"set_device_index": (0,), "set_device_idx": (0,), "device_index": (0,)}


@pytest.mark.filterwarnings("ignore:Use `.*` instead:FutureWarning")
@pytest.mark.parametrize("name", sorted(set(torch.accelerator.__all__) - {"Graph", "set_stream"}))
def test_torch_accelerator_has_an_answer(name: str) -> None:
    getattr(torch.accelerator, name)(*ARGUMENTS.get(name, ()))


def test_the_stub_of_the_compiled_core_lists_what_it_has() -> None:
    stub = ast.parse(Path(torch_neuronx.__file__).with_name("_C.pyi").read_text())
    written = {node.name for node in stub.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert written == {name for name in vars(_C) if not name.startswith("__")}


# ---- registrations ---------------------------------------------------------------------------------------------------

MINIMAL = [
    "empty.memory_format",
    "empty_strided",
    "as_strided",
    "view",
    "_reshape_alias",
    "resize_",
    "_copy_from",
    "_copy_from_and_resize",
    "_local_scalar_dense",
    "set_",
    "set_.source_Tensor",
    "set_.source_Storage",
    "set_.source_Storage_storage_offset",
    "_efficientzerotensor",
    "unfold",
    "record_stream",
]
OWN = [
    "add.Tensor",
    "mm",
    "addmm",
    "convolution_overrideable",
    "convolution_backward_overrideable",
    "native_dropout",
    "mul.Tensor",
]


def table(operator: str) -> dict[str, str]:
    lines = torch._C._dispatch_dump_table(operator).splitlines()
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize("operator", MINIMAL + OWN)
def test_an_operator_has_a_kernel_of_its_own(operator: str) -> None:
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{operator}", "PrivateUse1")
    assert table(f"aten::{operator}")["PrivateUse1"].endswith("[kernel]")


@pytest.mark.parametrize("operator", ["aten::bincount", "aten::linalg_eig", "aten::_fft_r2c", "aten::_unique2"])
def test_the_rest_has_the_fallback(operator: str) -> None:
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(operator, "PrivateUse1")
    row = table(operator)["PrivateUse1"]
    assert "boxed.cpp" in row
    assert row.endswith("[backend fallback]")


@pytest.mark.parametrize("key", ["Conjugate", "Negative"])
def test_copies_read_lazy_bits_themselves(key: str) -> None:
    row = table("aten::_copy_from")[key]
    assert "fallthrough" in row
    assert row.endswith("[kernel]")


@pytest.mark.parametrize(
    "operator", ["mm", "conv2d", "linear", "softmax.int", "addcmul", "binary_cross_entropy", "norm.Scalar"]
)
def test_autocast_has_torch_s_lists(operator: str) -> None:
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{operator}", "AutocastPrivateUse1")


def test_every_operator_that_cuda_autocasts_is_autocast_here() -> None:
    missing = {
        name
        for name in torch._C._dispatch_get_all_op_names()
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA")
        and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastPrivateUse1")
    }
    assert {name for name in missing if not name.startswith(("aten::cudnn_", "aten::_cudnn_"))} == set()


def test_autograd_warns_of_operators_without_a_derivative() -> None:
    assert "VariableFallbackKernel" in table("aten::_local_scalar_dense")["AutogradPrivateUse1"] or table(
        "aten::_local_scalar_dense"
    )["AutogradPrivateUse1"].endswith("[autograd kernel]")


def test_allocator_guard_and_hooks_are_registered() -> None:
    assert torch._C._get_accelerator() == torch.device("neuron")
    assert torch._C._accelerator_isAllocatorInitialized()
    assert torch._C._accelerator_getDeviceIndex() == torch._C._accelerator_hooks_get_current_device() == 0
    assert torch._C._accelerator_hooks_device_count() == 4
    assert torch._C._accelerator_getStream(1).device == torch.device("neuron:1")
    assert torch._C._get_privateuse1_backend_name() == "neuron"
    assert torch._utils._get_device_module("neuron") is n


def test_the_fork_flag_follows_a_fork(fresh: Any) -> None:
    code = """
    import json, os, torch
    from torch_neuronx import _C
    torch.ones(1, device="neuron")
    before = [torch.neuron._is_in_bad_fork(), _C.is_in_bad_fork()]
    child = os.fork()
    if child == 0:
        flags = [torch.neuron._is_in_bad_fork(), _C.is_in_bad_fork(), torch.neuron._initialized]
        os._exit(sum(2**bit for bit, flag in enumerate(flags) if flag))
    print(json.dumps([before, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), torch.neuron._is_in_bad_fork()]))
    """
    assert fresh(code).answer == [[False, False], 3, False]
